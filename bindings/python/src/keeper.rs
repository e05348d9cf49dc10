//! Finds the keeper of captures.

use cairn::checkpoint::keeper::Keeper;
use cairn::keeper::Client;
use std::sync::Arc;

/// The keeper that listens where keepers do, or at a path.
pub(crate) fn find_keeper(name: &str) -> Option<Arc<dyn Keeper>> {
    let client = match name {
        "auto" => Client::find()?,
        path => Client::new(path),
    };
    Some(Arc::new(client))
}
