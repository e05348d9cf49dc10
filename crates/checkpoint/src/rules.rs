//! Shard rules: patterns over names that say how each tensor of a model is cut.

use crate::Error;
use crate::pattern::Pattern;
use crate::source::Source;
use cairn_sharding::{Error as ShardingError, Mesh, Sharding, TensorSpec};
use std::collections::BTreeMap;

/// How the tensors of a model are laid out on a mesh, by name. The first rule that matches a name decides; tensors that no
/// rule matches are replicated.
///
/// ```
/// use cairn_checkpoint::ShardRules;
/// let rules = ShardRules::parse("dp=2,tp=4".parse()?, &["*.q_proj.weight=tp,-", "*.norm.*=-"])?;
/// let sharding = rules.sharding("layers.0.q_proj.weight", 2)?;
/// assert_eq!(sharding.to_string(), "tp, -");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardRules {
    mesh: Mesh,
    rules: Vec<ShardRule>,
}

/// One rule: names that match `pattern` are cut by `sharding`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardRule {
    /// Which names.
    pub pattern: Pattern,
    /// How they are cut. For a tensor with fewer dims, a pattern with wildcards cuts the dims there are.
    pub sharding: Sharding,
}

/// A rule that no tensor has a name for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusedRule {
    /// Its pattern.
    pub pattern: String,
    /// A name that nearly matches.
    pub near: Option<String>,
}

impl ShardRules {
    /// Reads rules of the form `PATTERN=SHARDING`, such as `*.q_proj.weight=tp,-`; the grammar of the sharding is
    /// [`Sharding::parse`]'s.
    ///
    /// # Errors
    /// [`Error::Rule`] if a rule has no `=` or its sharding does not fit the mesh.
    pub fn parse(mesh: Mesh, rules: &[impl AsRef<str>]) -> Result<Self, Error> {
        let parsed = rules.iter().map(|rule| {
            let rule = rule.as_ref();
            parse_rule(&mesh, rule).map_err(|source| Error::Rule {
                rule: rule.to_string(),
                source,
            })
        });
        let rules = parsed.collect::<Result<_, _>>()?;
        Ok(Self { mesh, rules })
    }

    /// The mesh.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// How the tensor called `name`, of `ndim` dims, is cut.
    ///
    /// # Errors
    /// [`Error::Placement`] if a rule for exactly this name names more dims than the tensor has.
    pub fn sharding(&self, name: &str, ndim: usize) -> Result<Sharding, Error> {
        self.sharding_of(&[name], ndim)
    }

    /// How the tensor that has all these names is cut.
    fn sharding_of(&self, names: &[&str], ndim: usize) -> Result<Sharding, Error> {
        let matches = |rule: &&ShardRule| names.iter().any(|name| rule.pattern.matches(name));
        let Some(rule) = self.rules.iter().find(matches) else {
            return Ok(Sharding::replicated(&self.mesh, ndim));
        };
        if rule.sharding.dims().len() <= ndim || rule.pattern.is_exact() {
            return Ok(rule.sharding.clone());
        }
        shortened(&rule.sharding, ndim).map_err(|source| Error::Placement {
            name: names.join("`, `"),
            source,
        })
    }

    /// The layout of every tensor of `source`, by its first name. A rule may match any of a tensor's names.
    ///
    /// # Errors
    /// [`Error::Placement`] if a tensor cannot be cut as its rule says.
    pub fn lay_out(&self, source: &dyn Source) -> Result<BTreeMap<String, TensorSpec>, Error> {
        let mut specs = BTreeMap::new();
        let aliases = source.aliases();
        for name in source.names() {
            let Some(stored) = source.find(name).filter(|_| !aliases.contains_key(name)) else {
                continue;
            };
            let others = aliases.iter().filter(|(_, of)| *of == name);
            let names: Vec<&str> = others
                .map(|(alias, _)| alias.as_str())
                .chain([name])
                .collect();
            let sharding = self.sharding_of(&names, stored.shape.len())?;
            let spec = TensorSpec::new(stored.dtype, stored.shape, sharding);
            let spec = spec.map_err(|source| Error::Placement {
                name: name.to_string(),
                source,
            })?;
            specs.insert(name.to_string(), spec);
        }
        Ok(specs)
    }

    /// The rules whose patterns match none of `names`: most likely typing errors.
    pub fn unused(&self, names: &[&str]) -> Vec<UnusedRule> {
        let unused = |rule: &&ShardRule| !names.iter().any(|name| rule.pattern.matches(name));
        let describe = |rule: &ShardRule| UnusedRule {
            pattern: rule.pattern.to_string(),
            near: rule.pattern.nearest(names.iter().copied()).map(Into::into),
        };
        self.rules.iter().filter(unused).map(describe).collect()
    }
}

fn parse_rule(mesh: &Mesh, text: &str) -> Result<ShardRule, ShardingError> {
    let syntax = |what, text: &str, expected| ShardingError::Syntax {
        what,
        text: text.to_string(),
        expected,
    };
    let (pattern, sharding) = text.split_once('=').ok_or_else(|| {
        let expected = "`PATTERN=SHARDING`, such as `*.q_proj.weight=tp,-`";
        syntax("shard rule", text, expected)
    })?;
    let parsed = Sharding::parse(mesh, sharding)?;
    if !parsed.partial().is_empty() {
        let expected = "whole values, without a reduction";
        return Err(syntax("sharding for a checkpoint", sharding, expected));
    }
    Ok(ShardRule {
        pattern: Pattern::new(pattern.trim()),
        sharding: parsed,
    })
}

/// The same sharding of a tensor that has only the first `ndim` dims.
fn shortened(sharding: &Sharding, ndim: usize) -> Result<Sharding, ShardingError> {
    Sharding::new(sharding.mesh(), sharding.dims()[..ndim].to_vec())?
        .with_flat(sharding.flat().to_vec())?
        .with_pins(sharding.pins().to_vec())
}

#[cfg(test)]
mod tests {
    //! Rules meet tensors of every number of dims.

    use super::*;

    fn rules(rules: &[&str]) -> Result<ShardRules, Error> {
        ShardRules::parse("dp=2,tp=4".parse().unwrap(), rules)
    }

    #[test]
    fn the_first_rule_that_matches_decides_and_the_rest_is_replicated() {
        let rules = rules(&["*.norm.*=-", "*.weight=tp,-", "*=dp"]).unwrap();
        let text = |name, ndim| rules.sharding(name, ndim).unwrap().to_string();
        assert_eq!(text("a.norm.weight", 1), "-");
        assert_eq!(text("a.q.weight", 2), "tp, -");
        assert_eq!(text("bias", 1), "dp");
        let none = super::tests::rules(&[]).unwrap();
        assert_eq!(none.sharding("x", 2).unwrap().to_string(), "-, -");
    }

    #[test]
    fn a_wildcard_rule_cuts_the_dims_there_are_and_an_exact_one_must_fit() {
        let rules = rules(&["w=tp,-", "*=dp+tp,- | flat(dp)"]);
        let error = rules.unwrap_err();
        assert!(error.to_string().contains("*=dp+tp,- | flat(dp)"));
        let rules = super::tests::rules(&["w=tp,dp", "*=tp,dp"]).unwrap();
        assert_eq!(rules.sharding("b", 1).unwrap().to_string(), "tp");
        assert_eq!(rules.sharding("scalar", 0).unwrap().to_string(), "");
        let exact = rules.sharding("w", 1).unwrap();
        let spec = TensorSpec::new(cairn_tensor::DType::F32, vec![8], exact);
        assert!(matches!(spec, Err(ShardingError::DimOutOfRange { .. })));
    }

    #[test]
    fn suffixes_survive_the_shortening() {
        let rules = rules(&["*=tp,- | flat(dp)"]).unwrap();
        assert_eq!(rules.sharding("b", 1).unwrap().to_string(), "tp | flat(dp)");
    }

    #[test]
    fn bad_rules_are_named_with_what_is_wrong() {
        let causes = [
            ("weight", "is not a shard rule"),
            ("w=pp", "the mesh has no axis `pp`"),
            ("w=tp,tp", "mesh axis `tp` is used twice"),
            ("w=- | sum(dp)", "is not a sharding for a checkpoint"),
        ];
        for (text, cause) in causes {
            let error = rules(&[text]).unwrap_err();
            let Error::Rule { rule, source } = &error else {
                panic!("{error}");
            };
            assert_eq!(rule, text);
            assert!(source.to_string().contains(cause), "{source}");
        }
        let hint = rules(&["w=pp"]).unwrap_err().hint();
        assert_eq!(hint.as_deref(), Some("its axes are `dp`, `tp`"));
    }

    #[test]
    fn a_rule_for_nothing_is_told_with_a_near_name() {
        let rules = rules(&["*.q_porj=tp", "*.k=tp", "zzzzzz=tp"]).unwrap();
        let unused = rules.unused(&["layers.0.q_proj", "layers.0.k"]);
        assert_eq!(unused.len(), 2);
        assert_eq!(unused[0].pattern, "*.q_porj");
        assert_eq!(unused[0].near.as_deref(), Some("layers.0.q_proj"));
        assert_eq!(unused[1].near, None);
    }
}
