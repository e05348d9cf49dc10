//! The layers of a model, seen in the names of its tensors.

use std::collections::BTreeMap;

/// A tensor's name, cut around the number of its layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LayerName<'a> {
    /// What stands before the number: `model.layers.`.
    pub(crate) stack: &'a str,
    pub(crate) layer: usize,
    /// What follows: `.mlp.up_proj.weight`.
    pub(crate) rest: &'a str,
}

impl<'a> LayerName<'a> {
    /// Cuts a name around its first part that is a number.
    pub(crate) fn of(name: &'a str) -> Option<Self> {
        let mut start = 0;
        for part in name.split('.') {
            let end = start + part.len();
            let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            if let (true, Ok(layer)) = (is_number, part.parse()) {
                return Some(Self {
                    stack: &name[..start],
                    layer,
                    rest: &name[end..],
                });
            }
            start = end + 1;
        }
        None
    }

    /// The name of the same tensor in another layer.
    pub(crate) fn at(self, layer: usize) -> String {
        format!("{}{layer}{}", self.stack, self.rest)
    }
}

/// How many layers each stack among some names has.
pub(crate) fn stacks<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut stacks = BTreeMap::new();
    for name in names.into_iter().filter_map(LayerName::of) {
        let count = stacks.entry(name.stack).or_default();
        *count = name.layer.saturating_add(1).max(*count);
    }
    stacks
}

/// Whether a tensor outside all layers comes before them: an embedding, and not the one that turns states into words again.
pub(crate) fn is_before_layers(name: &str) -> bool {
    let words = ["embed", "wte", "wpe", "shared"];
    !name.contains("embed_out") && words.iter().any(|word| name.contains(word))
}

/// Whether the rows of a tensor are tokens.
pub(crate) fn has_token_rows(name: &str) -> bool {
    let ends = [
        "embed_tokens.weight",
        "wte.weight",
        "lm_head.weight",
        "embed_in.weight",
        "embed_out.weight",
        "word_embeddings.weight",
        "tok_embeddings.weight",
        "lm_head.bias",
    ];
    ends.iter().any(|end| name.ends_with(end)) && LayerName::of(name).is_none()
}

#[cfg(test)]
mod tests {
    //! Names of well-known models.

    use super::*;

    #[test]
    fn the_first_number_in_a_name_is_its_layer() {
        let name = LayerName::of("model.layers.12.mlp.experts.3.w1.weight").unwrap();
        assert_eq!((name.stack, name.layer), ("model.layers.", 12));
        assert_eq!(name.at(7), "model.layers.7.mlp.experts.3.w1.weight");
        assert_eq!(LayerName::of("h.0.attn").unwrap().stack, "h.");
        assert_eq!(LayerName::of("model.norm2.weight"), None);
        assert_eq!(LayerName::of("x.99999999999999999999.y"), None);
    }

    #[test]
    fn a_stack_is_as_deep_as_its_highest_layer() {
        let names = ["enc.0.w", "enc.1.w", "dec.4.w", "norm"];
        let stacks = stacks(names);
        assert_eq!(stacks, [("dec.", 5), ("enc.", 2)].into());
    }

    #[test]
    fn embeddings_come_before_the_layers() {
        for name in [
            "model.embed_tokens.weight",
            "transformer.wte.weight",
            "gpt_neox.embed_in.weight",
        ] {
            assert!(is_before_layers(name), "{name}");
        }
        for name in ["lm_head.weight", "model.norm.weight", "embed_out.weight"] {
            assert!(!is_before_layers(name), "{name}");
        }
    }
}
