//! Addresses of stores: paths and URLs.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Error, Local, Store, Tiered};

/// What else is supported, for messages.
#[cfg(feature = "objects")]
const OBJECTS: &str = crate::object::SCHEMES;
#[cfg(not(feature = "objects"))]
const OBJECTS: &str = "";

/// Opens the store at a path such as `runs/7b`, or at a URL such as `file:///data/runs/7b`, or, with the features that know
/// them, `s3://bucket/runs/7b`, `gs://bucket/runs/7b`, `az://container/runs/7b`.
///
/// `tiers:FAST,DURABLE` and `node-tiers:FAST,DURABLE` are two stores as one, each with an address of its own: see [`Tiered`].
/// Nothing is made or looked at until the first operation.
///
/// # Errors
///
/// [`Error::InvalidUrl`] for an empty path or a URL of another kind, [`Error::Credentials`] if nothing opens the bucket.
pub fn open(url_or_path: &str) -> Result<Arc<dyn Store>, Error> {
    open_with(url_or_path, &[])
}

/// Opens a store as [`open`] does, with settings of the service, such as `("region", "eu-west-1")`, that come before those of the environment.
///
/// # Errors
///
/// As [`open`], and for a setting that the store does not have.
pub fn open_with(url_or_path: &str, options: &[(String, String)]) -> Result<Arc<dyn Store>, Error> {
    if let Some(tiers) = Tiered::open(url_or_path, open, |durable| open_with(durable, options)) {
        return tiers;
    }
    #[cfg(feature = "objects")]
    if crate::object::is_object_url(url_or_path) {
        return Ok(Arc::new(crate::object::open(url_or_path, options)?));
    }
    if let Some((name, _)) = options.first() {
        return Err(Error::InvalidUrl {
            url: redact(url_or_path),
            reason: format!("a folder has no settings, but `{name}` is given"),
        });
    }
    let path = local_path(url_or_path).map_err(|reason| Error::InvalidUrl {
        url: redact(url_or_path),
        reason,
    })?;
    Ok(Arc::new(Local::new(path)))
}

/// `text` without what may be secret in its URLs: names and passwords before the host, and what follows a `?`.
///
/// Whatever shows a URL that somebody else gave goes through here.
pub fn redact(text: &str) -> String {
    const HIDDEN: &str = "…";
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let ends = |c: char| c.is_whitespace() || "`'\"<>".contains(c);
        let (url, tail) = after.split_at(after.find(ends).unwrap_or(after.len()));
        let (path, query) = url.split_at(url.find('?').unwrap_or(url.len()));
        let (host, path) = path.split_at(path.find('/').unwrap_or(path.len()));
        match host.rsplit_once('@') {
            Some((_, host)) => shown.extend([HIDDEN, "@", host]),
            None => shown.push_str(host),
        }
        shown.push_str(path);
        if !query.is_empty() {
            shown.extend(["?", HIDDEN]);
        }
        rest = tail;
    }
    shown + rest
}

/// The `file://` URL of a path.
pub(crate) fn from_path(path: &Path) -> String {
    let mut url = "file://".to_owned();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => url.push(char::from(byte)),
            b'/' | b'.' | b'-' | b'_' | b'~' | b':' | b'=' | b'+' => url.push(char::from(byte)),
            _ => url.push_str(&format!("%{byte:02X}")),
        }
    }
    url
}

fn local_path(url_or_path: &str) -> Result<PathBuf, String> {
    if let Some(rest) = url_or_path.strip_prefix("file:") {
        return file_path(rest);
    }
    if let Some((scheme, _)) = url_or_path.split_once("://") {
        return Err(format!(
            "`{scheme}` is not supported; supported are paths, `file://`{OBJECTS}"
        ));
    }
    if url_or_path.is_empty() || url_or_path.contains('\0') {
        return Err("the path is empty or contains a NUL".to_owned());
    }
    Ok(PathBuf::from(url_or_path))
}

/// The path in what follows `file:`, with or without a host.
fn file_path(rest: &str) -> Result<PathBuf, String> {
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
        None => rest,
    };
    if !path.starts_with('/') {
        return Err("a `file://` URL needs an absolute path and no host".to_owned());
    }
    let bytes = decode(path).ok_or("it has a `%` without two hexadecimal digits")?;
    if bytes.contains(&0) {
        return Err("the path contains a NUL".to_owned());
    }
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

/// Replaces `%41` by `A`, and so on.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, after) = after.split_at_checked(2)?;
        let digit = |index: usize| char::from(digits[index]).to_digit(16);
        bytes.push(u8::try_from(digit(0)? * 16 + digit(1)?).ok()?);
        rest = after;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_and_file_urls_open_the_same_folder() {
        for address in [
            "/data/a b",
            "file:///data/a b",
            "file:///data/a%20b",
            "file:/data/a b",
            "file://localhost/data/a b",
        ] {
            assert_eq!(open(address).unwrap().url(), "file:///data/a%20b");
        }
    }

    #[test]
    fn relative_paths_are_anchored_when_opened() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(
            open("runs:1").unwrap().url(),
            from_path(&here.join("runs:1"))
        );
    }

    #[test]
    fn secrets_in_urls_are_not_shown() {
        let cases = [
            ("runs/7b?", "runs/7b?"),
            ("s3://bucket/run", "s3://bucket/run"),
            ("s3://key:secret@bucket/run", "s3://…@bucket/run"),
            ("https://host/x?sig=secret&y=1", "https://host/x?…"),
            (
                "az://k@h?s and gs://a:b@c/d@e x",
                "az://…@h?… and gs://…@c/d@e x",
            ),
            (
                "cannot open `s3://k:p@ss@b/r?t=1`: no",
                "cannot open `s3://…@b/r?…`: no",
            ),
            ("://", "://"),
        ];
        for (text, shown) in cases {
            assert_eq!(redact(text), shown);
        }
        let refused = open("ftp://user:secret@host/run?token=secret").unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains("secret"));
    }

    #[test]
    fn other_addresses_are_refused_with_a_reason() {
        let message = |address: &str| open(address).unwrap_err().to_string();
        assert_eq!(
            message("ftp://server/run"),
            format!(
                "cannot open a store at `ftp://server/run`: `ftp` is not supported; \
                 supported are paths, `file://`{OBJECTS}"
            )
        );
        assert!(message("").contains("empty"));
        assert!(message("a\0b").contains("NUL"));
        assert!(message("file:///a%00b").contains("NUL"));
        assert!(message("file:///a%4").contains('%'));
        assert!(message("file:///a%é").contains('%'));
        assert!(message("file://server/share").contains("no host"));
        assert!(message("file:relative").contains("absolute"));
    }

    proptest! {
        #[test]
        fn every_path_survives_its_url(bytes in prop::collection::vec(1u8.., 0..40)) {
            let path = PathBuf::from(OsString::from_vec([b"/".as_slice(), &bytes].concat()));
            prop_assert_eq!(local_path(&from_path(&path)), Ok(path));
        }
    }
}
