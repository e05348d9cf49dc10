//! Replaces a damaged file of the fast tier by a good one, in one step.

use super::{Copying, NearestGood};
use crate::Error;
use crate::error::StoreContext;
use cairn_store::PutMode;

/// Writes a damaged file of the fast tier anew: blocks that are good there from there, the others from the durable tier. A packed file is
/// copied as a whole.
///
/// # Crash safety
/// It is written aside and takes the place of the damaged one when all of it is durable.
pub(crate) fn mend(file: &NearestGood) -> Result<(), Error> {
    let (key, fast) = (&file.key, file.tiers.fast());
    let aside = format!("{key}.mending");
    // Whoever was at it before is dead; or it is at work now, fails, and leaves it to us.
    fast.delete(&aside).doing(|| format!("delete `{aside}`"))?;
    let copying = Copying {
        key,
        from: file,
        crcs: file.checksums(),
        pace: None,
    };
    copying.write(file.tiers.durable().as_ref(), fast.as_ref(), &aside)?;
    let replaced = fast.rename(&aside, key, PutMode::Replace);
    replaced.doing(|| format!("replace `{key}`"))?;
    tracing::info!(key, "mended on the fast tier");
    Ok(())
}
