//! Whose tokens a merged model has.

use super::node::{Node, Value};
use super::problem::{Problem, did_you_mean};
use super::read::given;
use super::reference::ModelReference;

/// Whose tokens the result has, and where their embeddings come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenizerConfig {
    /// Whose tokens.
    pub source: TokenizerSource,
    /// Tokens whose embeddings are chosen, in the order they were given.
    pub tokens: Vec<(String, TokenSource, bool)>,
    /// Embeddings are padded to a multiple of this many rows.
    pub pad_to_multiple_of: Option<usize>,
}

/// Whose tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenizerSource {
    /// Those of the base model, or of the first model.
    Base,
    /// All tokens of all models.
    Union,
    /// Those of one model.
    Model(ModelReference),
}

/// Where the embedding of a token comes from in models that lack it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// By rule: the base model, the only model that has it, or the mean of those that do.
    Rule,
    /// Zeros.
    Zero,
    /// The same token of a model.
    Model(ModelReference),
    /// A token of a model, by its text.
    Token(ModelReference, String),
    /// A token of a model, by its number.
    TokenId(ModelReference, usize),
}

impl TokenizerConfig {
    /// Reads `tokenizer_source` or `tokenizer`.
    pub(super) fn read(config: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let short = given(config, "tokenizer_source");
        let long = given(config, "tokenizer");
        let result = match (short, long) {
            (None, None) => return None,
            (Some(node), Some(_)) => Err(vec![Problem::new(
                node.line,
                "give either `tokenizer_source` or `tokenizer`",
            )]),
            (Some(node), None) => {
                source(node)
                    .map_err(|problem| vec![problem])
                    .map(|source| Self {
                        source,
                        tokens: Vec::new(),
                        pad_to_multiple_of: None,
                    })
            }
            (None, Some(node)) => full(node),
        };
        result.map_err(|found| problems.extend(found)).ok()
    }
}

fn source(node: &Node) -> Result<TokenizerSource, Problem> {
    match &node.value {
        Value::Text(text) if text == "union" => Ok(TokenizerSource::Union),
        Value::Text(text) if text == "base" => Ok(TokenizerSource::Base),
        _ => ModelReference::read(node).map(TokenizerSource::Model),
    }
}

fn full(node: &Node) -> Result<TokenizerConfig, Vec<Problem>> {
    let mut problems = unknown_keys(
        node,
        "`tokenizer`",
        &["source", "tokens", "pad_to_multiple_of"],
    );
    let mut keep = |problem: Problem| problems.push(problem);
    let chosen = given(node, "source").map_or(Ok(TokenizerSource::Union), source);
    let chosen = chosen.map_err(&mut keep).ok();
    let pad_to_multiple_of = given(node, "pad_to_multiple_of").and_then(|node| match node.value {
        Value::Number(number) if (1.0..1e9).contains(&number) && number.fract() == 0.0 =>
        {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the range was just checked"
            )]
            Some(number as usize)
        }
        _ => {
            keep(Problem::new(
                node.line,
                "`pad_to_multiple_of` is a whole number above 0",
            ));
            None
        }
    });
    let mut tokens = Vec::new();
    let listed = given(node, "tokens").and_then(Node::entries);
    for entry in listed.unwrap_or_default() {
        match token(&entry.node) {
            Ok((from, force)) => tokens.push((entry.key.clone(), from, force)),
            Err(found) => problems.extend(found),
        }
    }
    match chosen {
        Some(source) if problems.is_empty() => Ok(TokenizerConfig {
            source,
            tokens,
            pad_to_multiple_of,
        }),
        _ => Err(problems),
    }
}

fn token(node: &Node) -> Result<(TokenSource, bool), Vec<Problem>> {
    let problems = unknown_keys(node, "a token", &["source", "force"]);
    if !problems.is_empty() {
        return Err(problems);
    }
    let force = given(node, "force").is_some_and(|node| node.value == Value::Bool(true));
    let Some(source) = given(node, "source") else {
        return Ok((TokenSource::Rule, force));
    };
    let one = |problem| vec![problem];
    let Some(kind) = source.get("kind") else {
        let model = ModelReference::read(source).map_err(one)?;
        return Ok((TokenSource::Model(model), force));
    };
    match &kind.value {
        Value::Text(kind) if kind == "zero" => Ok((TokenSource::Zero, force)),
        Value::Text(kind) if kind == "model_token" => {
            let missing = || one(Problem::new(source.line, "a `model_token` needs a `model`"));
            let model = source.get("model").ok_or_else(missing)?;
            let model = ModelReference::read(model).map_err(one)?;
            let of = |key: &str| source.get(key).map(|node| &node.value);
            match (of("token"), of("token_id")) {
                (Some(Value::Text(text)), None) => {
                    Ok((TokenSource::Token(model, text.clone()), force))
                }
                (None, Some(Value::Number(id))) if (0.0..1e9).contains(id) => {
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "the range was just checked"
                    )]
                    let id = *id as usize;
                    Ok((TokenSource::TokenId(model, id), force))
                }
                _ => Err(one(Problem::new(
                    source.line,
                    "a `model_token` needs either a `token` or a `token_id`",
                ))),
            }
        }
        _ => Err(one(Problem::new(
            kind.line,
            "`kind` is `zero` or `model_token`",
        ))),
    }
}

fn unknown_keys(node: &Node, what: &str, known: &[&str]) -> Vec<Problem> {
    let Some(entries) = node.entries() else {
        let reason = format!("{what} is a map, not {}", node.kind());
        return vec![Problem::new(node.line, reason)];
    };
    let unknown = entries
        .iter()
        .filter(|entry| !known.contains(&entry.key.as_str()));
    unknown
        .map(|entry| {
            let near = did_you_mean(&entry.key, known.iter().copied());
            Problem::new(entry.line, format!("{what} has no `{}`{near}", entry.key))
        })
        .collect()
}
