//! Buckets of Google Cloud Storage.

use super::address::{Address, Settings, client_options, configure, environment};
use super::bucket::Bucket;
use crate::Error;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use std::sync::Arc;

/// Opens a bucket; credentials are those of `GOOGLE_APPLICATION_CREDENTIALS`, of `gcloud`, or of the machine.
pub(super) fn open(address: &Address<'_>, settings: &Settings) -> Result<Bucket, Error> {
    address.check(&environment::<GoogleConfigKey>("google_"))?;
    address.check(&settings.service)?;
    let builder = GoogleCloudStorageBuilder::new()
        .with_client_options(client_options())
        .with_bucket_name(address.bucket)
        .with_retry(settings.retry.clone());
    let client = configure!(builder, environment::<GoogleConfigKey>("google_"))
        .and_then(|builder| configure!(builder, settings.service))
        .and_then(GoogleCloudStorageBuilder::build);
    let client = client.map_err(|fault| address.refused(fault.to_string()))?;
    Bucket::new(Arc::new(client), &address.root())
}
