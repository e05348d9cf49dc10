//! Buckets of Amazon S3 and of what speaks like it.

use super::address::{Address, Settings, client_options, configure, environment};
use super::bucket::Bucket;
use super::profile::Profile;
use super::uploads::S3Uploads;
use crate::Error;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as Key, Checksum};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Where a machine of Amazon learns who it is, and how long it may take to find out that this is none.
const METADATA: ([u8; 4], u16) = ([169, 254, 169, 254], 80);
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);

/// Opens a bucket. Settings come from the options, then the environment, then the profile.
pub(super) fn open(address: &Address<'_>, settings: &Settings) -> Result<Bucket, Error> {
    let refused = |fault: object_store::Error| address.refused(fault.to_string());
    let profile = Profile::find(settings.profile());
    address.check(&environment::<Key>("aws_"))?;
    address.check(
        settings
            .service
            .iter()
            .chain(&profile.keys)
            .chain(&profile.places),
    )?;
    let builder = configured(settings).map_err(refused)?;
    check_credentials(address, &builder, settings)?;
    let endpoint = [Key::S3Endpoint, Key::Endpoint];
    let endpoint = endpoint
        .iter()
        .find_map(|key| builder.get_config_value(key));
    let is_plain = endpoint
        .as_ref()
        .is_some_and(|url| url.starts_with("http://"));
    let mut builder = builder
        .with_bucket_name(address.bucket)
        .with_retry(settings.retry.clone())
        // Objects are deleted one by one, which every service knows.
        .with_disable_bulk_delete(true);
    if is_plain {
        // Whoever names such an address allows it.
        builder = builder.with_allow_http(true);
    }
    if endpoint.is_none() && builder.get_config_value(&Key::Checksum).is_none() {
        // Amazon itself checks, and keeps, the checksum of every part. Others may not know it; there the signature covers the bytes.
        builder = builder
            .with_checksum_algorithm(Checksum::CRC64NVME)
            .with_unsigned_payload(true);
    }
    let client = builder.build().map_err(refused)?;
    let uploads = S3Uploads::new(client.clone(), is_plain).map_err(refused)?;
    let mut bucket = Bucket::new(Arc::new(client), &address.root())?;
    bucket.uploads = Some(Box::new(uploads));
    if endpoint.is_some() {
        // Amazon keeps conditions; others are asked.
        bucket.has_one_winner = OnceLock::new();
    }
    Ok(bucket)
}

fn configured(settings: &Settings) -> Result<AmazonS3Builder, object_store::Error> {
    let environment = environment::<Key>("aws_");
    let explicit: Vec<(String, String)> = settings
        .service
        .iter()
        .filter(|(name, _)| name != "profile")
        .cloned()
        .collect();
    let has_key = |settings: &[(String, String)]| {
        let is_key = |name: &str| matches!(name.parse(), Ok(Key::AccessKeyId));
        settings.iter().any(|(name, _)| is_key(name))
    };
    let profile = Profile::find(settings.profile());
    // Keys are taken from one place: the token of one and the key of another do not fit.
    let mut builder = AmazonS3Builder::new().with_client_options(client_options());
    builder = configure!(builder, profile.places)?;
    if !has_key(&environment) && !has_key(&explicit) {
        builder = configure!(builder, profile.keys)?;
    }
    if has_key(&explicit) {
        let places = environment.iter().filter(|(name, _)| !is_secret(name));
        builder = configure!(builder, places.cloned().collect::<Vec<_>>())?;
    } else {
        builder = configure!(builder, environment)?;
    }
    configure!(builder, explicit)
}

/// Whether a setting is one of those that belong together.
fn is_secret(name: &str) -> bool {
    matches!(
        name.parse(),
        Ok(Key::AccessKeyId | Key::SecretAccessKey | Key::Token)
    )
}

impl Settings {
    /// The profile asked for, if it is not the one of the environment.
    fn profile(&self) -> Option<&str> {
        let named = self.service.iter().find(|(name, _)| name == "profile");
        named.map(|(_, value)| value.as_str())
    }
}

/// Finds out early, and not after many tries, that nothing opens the bucket.
fn check_credentials(
    address: &Address<'_>,
    builder: &AmazonS3Builder,
    settings: &Settings,
) -> Result<(), Error> {
    let is_set = |key: &Key| {
        builder
            .get_config_value(key)
            .is_some_and(|value| !value.is_empty())
    };
    let given = [
        Key::AccessKeyId,
        Key::WebIdentityTokenFile,
        Key::ContainerCredentialsRelativeUri,
        Key::ContainerCredentialsFullUri,
        Key::MetadataEndpoint,
    ];
    let is_anonymous = builder
        .get_config_value(&Key::SkipSignature)
        .is_some_and(|value| value == "true");
    if is_anonymous || given.iter().any(is_set) {
        return Ok(());
    }
    if let Some(reason) = Profile::find(settings.profile()).unsupported {
        return Err(Error::Credentials {
            url: address.root(),
            reason,
        });
    }
    let is_disabled = std::env::var("AWS_EC2_METADATA_DISABLED").is_ok_and(|value| value == "true");
    let metadata = SocketAddr::from(METADATA);
    match !is_disabled && TcpStream::connect_timeout(&metadata, METADATA_TIMEOUT).is_ok() {
        true => Ok(()),
        false => Err(Error::Credentials {
            url: address.root(),
            reason: "there are none",
        }),
    }
}
