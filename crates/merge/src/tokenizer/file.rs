//! The file of a fast tokenizer: its tokens, and how more are added.

use super::{TOKENIZER_FILE, Tokens};
use crate::Error;
use crate::models::{CONFIG_FILE, Model};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// A model's tokenizer, and how many tokens the model knows.
pub(super) fn tokenizer(model: &Model) -> Result<Option<(Value, usize)>, Error> {
    let Some(file) = model.json(TOKENIZER_FILE)? else {
        return Ok(None);
    };
    let rows = model.json(CONFIG_FILE)?.and_then(|config| {
        let text = config
            .get("text_config")
            .and_then(|text| text.get("vocab_size"));
        config.get("vocab_size").or(text).and_then(Value::as_u64)
    });
    let rows = rows
        .and_then(|rows| usize::try_from(rows).ok())
        .unwrap_or(usize::MAX);
    Ok(Some((file, rows)))
}

/// The tokens that a model has embeddings for.
pub(super) fn used(mut tokens: Tokens, rows: usize) -> Tokens {
    tokens.retain(|_, id| *id < rows);
    tokens
}

/// Every token of a tokenizer file and its number.
pub(super) fn tokens_of(file: &Value) -> Tokens {
    let mut tokens = Tokens::new();
    let number = |value: &Value| value.as_u64().and_then(|id| usize::try_from(id).ok());
    match file.pointer("/model/vocab") {
        Some(Value::Object(vocab)) => {
            tokens.extend(
                vocab
                    .iter()
                    .filter_map(|(token, id)| Some((token.clone(), number(id)?))),
            );
        }
        // Unigram models list pairs of a token and its score.
        Some(Value::Array(list)) => {
            let token = |pair: &Value| pair.get(0)?.as_str().map(str::to_string);
            let numbered = list.iter().enumerate();
            tokens.extend(numbered.filter_map(|(id, pair)| Some((token(pair)?, id))));
        }
        _ => {}
    }
    for added in file
        .get("added_tokens")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let content = added.get("content").and_then(Value::as_str);
        if let (Some(content), Some(id)) = (content, added.get("id").and_then(number)) {
            tokens.insert(content.to_string(), id);
        }
    }
    tokens
}

/// Adds tokens at the end of a tokenizer; whether there were any it lacked.
pub(super) fn add_tokens(
    file: &mut Value,
    known: &Tokens,
    added: Vec<String>,
    models: &[Model],
    all: &[Tokens],
) -> Result<bool, Error> {
    let mut next = known.values().max().map_or(0, |id| id + 1);
    let mut settings = HashMap::new();
    for (model, tokens) in models.iter().zip(all) {
        let Some((other, _)) = tokenizer(model)? else {
            continue;
        };
        for entry in other
            .get("added_tokens")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let content = entry
                .get("content")
                .and_then(Value::as_str)
                .unwrap_or_default();
            if tokens.contains_key(content) {
                settings
                    .entry(content.to_string())
                    .or_insert_with(|| entry.clone());
            }
        }
    }
    let Some(object) = file.as_object_mut() else {
        return Ok(false);
    };
    let list = object.entry("added_tokens").or_insert_with(|| json!([]));
    let list = list.as_array_mut().map_or_else(Vec::new, std::mem::take);
    let mut list: Vec<Value> = list;
    let mut seen: Tokens = known.clone();
    let before = next;
    for token in added {
        if seen.contains_key(&token) {
            continue;
        }
        let mut entry = settings
            .remove(&token)
            .unwrap_or_else(|| plain_token(&token));
        entry["id"] = json!(next);
        list.push(entry);
        seen.insert(token, next);
        next += 1;
    }
    object.insert("added_tokens".into(), Value::Array(list));
    Ok(next > before)
}

fn plain_token(content: &str) -> Value {
    let mut entry = Map::new();
    entry.insert("id".into(), json!(0));
    entry.insert("content".into(), json!(content));
    for flag in ["single_word", "lstrip", "rstrip"] {
        entry.insert(flag.into(), json!(false));
    }
    entry.insert("normalized".into(), json!(true));
    entry.insert("special".into(), json!(false));
    Value::Object(entry)
}
