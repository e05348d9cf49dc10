//! What a file of tokens contains.

use crate::error::Error;
use crate::table::{Paint, Table};
use cairn::data;
use serde::Serialize;

/// What a file of tokens contains.
#[derive(Debug, Serialize)]
pub(crate) struct Tokens {
    path: String,
    format: &'static str,
    documents: u64,
    tokens: u64,
    mean_tokens: Option<f64>,
    vocabulary: Option<u32>,
}

/// Looks whether there is a file of tokens; what is of another kind is for others to open.
pub(crate) fn find(path: &str) -> Result<Option<Tokens>, Error> {
    let documents = match data::open(path) {
        Ok(documents) => documents,
        Err(data::Error::File { .. } | data::Error::Foreign { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let (count, tokens) = (documents.documents(), documents.tokens());
    Ok(Some(Tokens {
        path: path.to_string(),
        format: documents.format(),
        documents: count,
        tokens,
        mean_tokens: (count > 0).then(|| tokens as f64 / count as f64),
        vocabulary: documents.vocabulary(),
    }))
}

impl Tokens {
    pub(crate) fn text(&self, paint: Paint) -> String {
        let mut facts = Table::facts();
        facts.fact("path", self.path.as_str());
        facts.fact("format", self.format);
        facts.fact("tokens", self.tokens.to_string());
        facts.fact("documents", self.documents.to_string());
        if let Some(mean) = self.mean_tokens {
            facts.fact("mean length", format!("{mean:.1}"));
        }
        if let Some(vocabulary) = self.vocabulary {
            facts.fact("vocabulary", vocabulary.to_string());
        }
        facts.render(paint)
    }
}
