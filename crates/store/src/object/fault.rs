//! What the errors of a service mean.
//!
//! Nothing of a client's own report is passed on but the service's code and message and the system's: addresses with signatures in them stay here.

use crate::Error;
use object_store::Error as Fault;
use object_store::client::{HttpError, HttpErrorKind};
use std::error::Error as StdError;
use std::iter::successors;

/// What an error of the client means for the object `key` of the bucket at `url`.
pub(super) fn meaning(url: &str, key: &str, operation: &'static str, fault: &Fault) -> Error {
    let (url, key) = (url.to_owned(), key.to_owned());
    let text = fault.to_string();
    let code = element(&text, "Code").unwrap_or_default();
    if let Some(reason) = refused_credentials(code, &text) {
        return Error::Credentials { url, reason };
    }
    match (code, fault) {
        ("NoSuchBucket" | "ContainerNotFound", _) => Error::NoBucket { url },
        ("RequestTimeTooSkewed", _) => Error::ClockSkew { url },
        (_, Fault::NotFound { .. }) => Error::NotFound { key },
        // Whoever creates under a condition that fails has lost to another.
        (_, Fault::AlreadyExists { .. } | Fault::Precondition { .. }) => {
            Error::AlreadyExists { key }
        }
        _ if matches!(status(fault), Some(401 | 403)) => Error::PermissionDenied { key, operation },
        (_, Fault::NotSupported { .. } | Fault::NotImplemented { .. }) => {
            Error::Unsupported { key, operation }
        }
        _ if transport(fault) == Some(HttpErrorKind::Connect) => {
            let reason = summary(fault, &text);
            Error::Unreachable { url, reason }
        }
        _ => Error::Service {
            key,
            operation,
            reason: summary(fault, &text),
        },
    }
}

/// What is wrong with the credentials, if the service says that something is.
fn refused_credentials(code: &str, text: &str) -> Option<&'static str> {
    Some(match code {
        "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" => "they have expired",
        "InvalidAccessKeyId" => "the service does not know the access key",
        "SignatureDoesNotMatch" | "AuthenticationFailed" => {
            "the secret key is not the one of the access key"
        }
        "InvalidToken" => "the session token is not valid",
        // Machines of a cloud ask there who they are; others find nobody.
        "" if ["169.254.169.254", "metadata.google.internal"]
            .iter()
            .any(|host| text.contains(host)) =>
        {
            "there are none"
        }
        _ => return None,
    })
}

/// Whether the service gave a reason that [`meaning`] can tell.
pub(super) fn says_why(fault: &Fault) -> bool {
    element(&fault.to_string(), "Code").is_some() || transport(fault).is_some()
}

/// Whether two requests of others met, and this one should be made again.
pub(super) fn is_conflict(fault: &Fault) -> bool {
    let text = fault.to_string();
    matches!(
        element(&text, "Code"),
        Some("ConditionalRequestConflict" | "OperationAborted")
    )
}

/// Whether the request may have been carried out although no answer came, or one that says nothing.
pub(super) fn is_lost_answer(fault: &Fault) -> bool {
    transport(fault).is_some() || status(fault).is_some_and(|status| status >= 500)
}

/// Whether the service does not have what was asked of it, and never will.
pub(super) fn is_not_offered(fault: &Fault) -> bool {
    status(fault) == Some(501) || element(&fault.to_string(), "Code") == Some("NotImplemented")
}

/// How the connection failed, if it did.
fn transport(fault: &Fault) -> Option<HttpErrorKind> {
    causes(fault).find_map(|cause| Some(cause.downcast_ref::<HttpError>()?.kind()))
}

/// The number of the service's answer, if it was one that says no.
pub(super) fn status(fault: &Fault) -> Option<u16> {
    let text = fault.to_string();
    let (_, number) = text.split_once("non-2xx status code: ")?;
    number.get(..3)?.parse().ok()
}

/// The service's words, or the system's.
fn summary(fault: &Fault, text: &str) -> String {
    if let Some(kind) = transport(fault) {
        let last = causes(fault).last().map(ToString::to_string);
        let last = last.filter(|last| !last.contains("://"));
        return match (kind, last) {
            (HttpErrorKind::Timeout, _) => "it did not answer in time".to_owned(),
            (_, Some(last)) => last,
            (_, None) => "the connection failed".to_owned(),
        };
    }
    let code = element(text, "Code");
    let message = element(text, "Message").map(|message| message.trim_end_matches('.'));
    match (code, message, status(fault)) {
        (Some(code), Some(message), _) => format!("{message} ({code})"),
        (Some(code), None, _) => code.to_owned(),
        (None, _, Some(status)) => format!("it answered {status}"),
        (None, _, None) => "its answer is not understood".to_owned(),
    }
}

/// The text between `<name>` and `</name>`.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

fn causes<'a>(fault: &'a Fault) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let first: &'a (dyn StdError + 'static) = fault;
    successors(Some(first), |cause: &&'a (dyn StdError + 'static)| {
        (*cause).source()
    })
}
