//! Some tensors of a source.

use crate::Error;
use crate::computed::SharedSource;
use crate::source::{Source, SourceFile, StoredPiece, StoredTensor};
use cairn_sharding::Region;
use cairn_store::Location;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A source of which only some tensors are seen.
///
/// A tensor of which only other names are chosen is known by the first of them.
pub struct Chosen {
    source: SharedSource,
    names: BTreeSet<String>,
    aliases: BTreeMap<String, String>,
}

impl Chosen {
    /// The tensors of `source` whose names `is_chosen`.
    pub fn new(source: SharedSource, is_chosen: impl Fn(&str) -> bool) -> Self {
        let names = source.names().into_iter().filter(|name| is_chosen(name));
        let names: BTreeSet<String> = names.map(Into::into).collect();
        let mut aliases = BTreeMap::new();
        let mut first_names: HashMap<String, String> = HashMap::new();
        for (alias, of) in source.aliases() {
            if !names.contains(&alias) {
                continue;
            }
            if names.contains(&of) {
                aliases.insert(alias, of);
            } else if let Some(first) = first_names.get(&of) {
                aliases.insert(alias, first.clone());
            } else {
                first_names.insert(of, alias);
            }
        }
        Self {
            source,
            names,
            aliases,
        }
    }
}

impl Source for Chosen {
    fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    fn aliases(&self) -> BTreeMap<String, String> {
        self.aliases.clone()
    }

    fn find(&self, name: &str) -> Option<StoredTensor> {
        let chosen = self.names.contains(name);
        chosen.then(|| self.source.find(name)).flatten()
    }

    fn pieces(&self, name: &str, region: &Region) -> Result<Vec<StoredPiece>, Error> {
        self.source.pieces(name, region)
    }

    fn open_file(&self, file: usize) -> Result<Arc<SourceFile>, Error> {
        self.source.open_file(file)
    }

    fn assets(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        self.source.assets()
    }

    fn places(&self) -> Vec<Location> {
        self.source.places()
    }

    fn mend(&self) -> Vec<String> {
        self.source.mend()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ModelSource;
    use cairn_formats::{Model, Tensor};
    use cairn_store::Memory;
    use cairn_tensor::DType;

    #[test]
    fn a_tensor_without_its_own_name_is_known_by_another() {
        let tensor = Tensor {
            dtype: DType::F32,
            shape: vec![0],
            pieces: Vec::new(),
        };
        let mut model = Model::default();
        model.tensors.insert("embed".into(), tensor);
        for alias in ["head", "last", "tied"] {
            model.aliases.insert(alias.into(), "embed".into());
        }
        let source = ModelSource::new(Arc::new(Memory::new()), model);
        let chosen = Chosen::new(Arc::new(source), |name| !["embed", "tied"].contains(&name));
        assert_eq!(chosen.names(), ["head", "last"]);
        assert_eq!(chosen.aliases(), [("last".into(), "head".into())].into());
        assert!(chosen.find("head").is_some() && chosen.find("embed").is_none());
    }
}
