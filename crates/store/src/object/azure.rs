//! Containers of Azure Blob Storage.

use super::address::{Address, Settings, client_options, configure, environment};
use super::bucket::Bucket;
use crate::Error;
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use std::sync::Arc;

/// Opens a container; the account is in the address (`abfss://container@account.dfs.core.windows.net`) or among the settings.
///
/// Blocks that nobody finishes go by themselves after a week, so there are no uploads to list.
pub(super) fn open(address: &Address<'_>, settings: &Settings) -> Result<Bucket, Error> {
    address.check(&environment::<AzureConfigKey>("azure_"))?;
    address.check(&settings.service)?;
    let builder = MicrosoftAzureBuilder::new()
        .with_client_options(client_options())
        .with_url(address.root().replacen("azure://", "az://", 1))
        .with_retry(settings.retry.clone());
    let client = configure!(builder, environment::<AzureConfigKey>("azure_"))
        .and_then(|builder| configure!(builder, settings.service))
        .and_then(MicrosoftAzureBuilder::build);
    let client = client.map_err(|fault| address.refused(fault.to_string()))?;
    Bucket::new(Arc::new(client), &address.root())
}
