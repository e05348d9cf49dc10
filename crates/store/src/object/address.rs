//! Addresses of buckets, and the settings that open them.

use super::Objects;
use super::bucket::{Bucket, RETRY_TIMEOUT};
use crate::Error;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use std::ffi::OsString;
use std::str::FromStr;
use std::sync::Once;
use std::time::Duration;

/// How often a request is tried again at most, unless the settings say otherwise. The time it may take ends earlier.
const MAX_RETRIES: usize = 50;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// How long one try of a request may take.
const REQUEST_TIMEOUT: &str = "120 seconds";
const CONNECT_TIMEOUT: &str = "5 seconds";

/// What addresses of buckets begin with, and the feature that knows them.
const SERVICES: [(&str, &str); 8] = [
    ("s3", "s3"),
    ("s3a", "s3"),
    ("gs", "gcs"),
    ("gcs", "gcs"),
    ("az", "azure"),
    ("azure", "azure"),
    ("abfs", "azure"),
    ("abfss", "azure"),
];

/// The usual names, for messages.
pub(crate) const SCHEMES: &str = ", `s3://`, `gs://`, `az://`";

/// Whether an address names a bucket.
pub(crate) fn is_object_url(url: &str) -> bool {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| SERVICES.iter().any(|(known, _)| *known == scheme))
}

/// An address, taken apart.
pub(super) struct Address<'a> {
    pub(super) scheme: &'a str,
    /// The bucket, or `container@account.…`.
    pub(super) bucket: &'a str,
    folder: &'a str,
}

impl<'a> Address<'a> {
    fn parse(url: &'a str) -> Result<Self, Error> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let (bucket, folder) = rest.split_once('/').unwrap_or((rest, ""));
        let address = Self {
            scheme,
            bucket,
            folder,
        };
        match bucket {
            "" => Err(address.refused("it names no bucket".to_owned())),
            _ => Ok(address),
        }
    }

    /// The address of the bucket itself.
    pub(super) fn root(&self) -> String {
        format!("{}://{}", self.scheme, self.bucket)
    }

    pub(super) fn refused(&self, reason: String) -> Error {
        Error::InvalidUrl {
            url: crate::redact(&format!("{}/{}", self.root(), self.folder)),
            reason,
        }
    }
}

/// What was asked for by name, with what is common to all services taken out.
pub(super) struct Settings {
    /// What the client of the service is to know, in lower case.
    pub(super) service: Vec<(String, String)>,
    pub(super) retry: RetryConfig,
}

impl Settings {
    fn parse(address: &Address<'_>, options: &[(String, String)]) -> Result<Self, Error> {
        let mut retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: FIRST_PAUSE,
                max_backoff: MAX_PAUSE,
                base: 2.0,
            },
            max_retries: MAX_RETRIES,
            retry_timeout: RETRY_TIMEOUT,
        };
        let mut service = Vec::new();
        for (name, value) in options {
            let number = || {
                let reason = || format!("`{name}` is a number, not `{value}`");
                value.parse().map_err(|_| address.refused(reason()))
            };
            match name.to_ascii_lowercase().as_str() {
                "max_retries" => {
                    retry.max_retries = usize::try_from(number()?).unwrap_or(usize::MAX)
                }
                "retry_timeout_s" => retry.retry_timeout = Duration::from_secs(number()?),
                other => service.push((other.to_owned(), value.clone())),
            }
        }
        Ok(Self { service, retry })
    }
}

/// How requests are made, before the settings of the user.
pub(super) fn client_options() -> ClientOptions {
    use object_store::ClientConfigKey as Key;
    static TLS: Once = Once::new();
    // If the program has chosen another library for TLS, that one is used.
    TLS.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    ClientOptions::new()
        .with_config(Key::Timeout, REQUEST_TIMEOUT)
        .with_config(Key::ConnectTimeout, CONNECT_TIMEOUT)
}

/// The settings of the environment that the client of a service knows: variables whose names begin with `prefix`, in any case.
pub(super) fn environment<K: FromStr>(prefix: &str) -> Vec<(String, String)> {
    let text = |(name, value): (OsString, OsString)| {
        let name = name.to_str()?.to_ascii_lowercase();
        Some((name, value.into_string().ok()?))
    };
    let variables = std::env::vars_os().filter_map(text);
    variables
        .filter(|(name, _)| name.starts_with(prefix) && name.parse::<K>().is_ok())
        .collect()
}

/// Sets what is asked for by name; a name that the client does not know is an error that names it.
macro_rules! configure {
    ($builder:expr, $settings:expr) => {
        $settings
            .iter()
            .try_fold($builder, |builder, (name, value)| {
                Ok::<_, object_store::Error>(builder.with_config(name.parse()?, value))
            })
    };
}
pub(super) use configure;

/// Opens the folder of a bucket. Settings come from `options`, then the environment, then the user's files.
pub(crate) fn open(url: &str, options: &[(String, String)]) -> Result<Objects, Error> {
    let (url, options) = (url.to_owned(), options.to_vec());
    let folder = Address::parse(&url)?.folder.to_owned();
    let open = move || {
        let address = Address::parse(&url)?;
        let settings = Settings::parse(&address, &options)?;
        let mut bucket = open_bucket(&address, &settings)?;
        bucket.retry_timeout = settings.retry.retry_timeout;
        Ok(bucket)
    };
    Objects::of_bucket(open()?, &folder, Some(Box::new(open)))
}

fn open_bucket(address: &Address<'_>, settings: &Settings) -> Result<Bucket, Error> {
    let service = SERVICES
        .iter()
        .find(|(scheme, _)| *scheme == address.scheme);
    match service {
        #[cfg(feature = "s3")]
        Some((_, "s3")) => super::s3::open(address, settings),
        #[cfg(feature = "gcs")]
        Some((_, "gcs")) => super::gcs::open(address, settings),
        #[cfg(feature = "azure")]
        Some((_, "azure")) => super::azure::open(address, settings),
        Some((_, feature)) => Err(address.refused(format!(
            "this build does not know it: it needs the feature `{feature}`"
        ))),
        None => Err(address.refused("it is no bucket".to_owned())),
    }
}
