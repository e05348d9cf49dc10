//! Files that say how many they are: `model-00002-of-00005.safetensors`.

use crate::Error;
use std::collections::BTreeMap;

/// An error if some of the files that count themselves are not among `names`.
///
/// A folder without an index is opened by what lies in it; one that is still being written or fetched must not pass for a
/// smaller model.
pub(crate) fn check_complete(place: &str, names: &[&str]) -> Result<(), Error> {
    let mut found: BTreeMap<(&str, u64, &str), u64> = BTreeMap::new();
    let counted = names.iter().filter_map(|name| parse(name));
    for (stem, _, total, end) in counted.filter(|(stem, ..)| !is_of_one_rank(stem)) {
        *found.entry((stem, total, end)).or_default() += 1;
    }
    for ((stem, total, end), count) in found {
        if count < total {
            return Err(Error::Unfinished {
                place: place.to_string(),
                reason: format!(
                    "it has {count} of the {total} files `{stem}-…-of-{total:05}{end}`"
                ),
            });
        }
    }
    Ok(())
}

/// Whether a file has the number of a rank, too, as torch names those of sharded saves: a rank writes those that it has something for.
fn is_of_one_rank(stem: &str) -> bool {
    let rank = stem
        .strip_prefix("shard-")
        .and_then(|rest| rest.split('-').next());
    rank.is_some_and(|rank| rank.parse::<u64>().is_ok())
}

/// Stem, number, total and ending of a name.
fn parse(name: &str) -> Option<(&str, u64, u64, &str)> {
    let (before, after) = name.rsplit_once("-of-")?;
    let (stem, number) = before.rsplit_once('-')?;
    let (total, end) = after.split_at(after.find('.')?);
    Some((stem, number.parse().ok()?, total.parse().ok()?, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_need_not_write_every_file() {
        let names = ["shard-00001-model-00001-of-00002.safetensors"];
        check_complete("here", &names).unwrap();
        assert!(check_complete("here", &["shard-model-00001-of-00002.safetensors"]).is_err());
    }

    #[test]
    fn a_set_is_complete_with_its_last_file() {
        let names = [
            "model-00001-of-00003.safetensors",
            "model-00002-of-00003.safetensors",
            "model-00003-of-00003.safetensors",
            "adapter.safetensors",
            "one-of-many.safetensors",
        ];
        check_complete("here", &names).unwrap();
        for missing in 0..3 {
            let mut names = names.to_vec();
            names.remove(missing);
            let error = check_complete("here", &names).unwrap_err();
            assert_eq!(
                error.to_string(),
                "`here` is a save that never finished: it has 2 of the 3 files `model-…-of-00003.safetensors`"
            );
        }
    }
}
