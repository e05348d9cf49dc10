//! Documents as one long stream of tokens, wherever they are stored.

use crate::file::{failed, locate};
use crate::{Error, Megatron, TokenFile};
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// What else is known about a document: the other fields of its JSON line.
pub type Fields = serde_json::Map<String, serde_json::Value>;

/// Documents as one long stream of tokens, one after another.
///
/// Every method reads a few ranges of a file and keeps nothing.
pub trait Documents: Debug + Send + Sync {
    /// The file, for messages.
    fn file(&self) -> &str;

    /// The format of the file: `tokens` or `megatron`.
    fn format(&self) -> &'static str;

    /// How many documents there are.
    fn documents(&self) -> u64;

    /// How many tokens all documents have together.
    fn tokens(&self) -> u64;

    /// The number that all tokens are below, if the file says.
    fn vocabulary(&self) -> Option<u32> {
        None
    }

    /// Where each of these documents ends in the stream; it begins where the one before ends.
    ///
    /// # Errors
    /// If there are fewer documents, the file cannot be read, or a document ends before it begins or after the last token.
    fn ends(&self, documents: Range<u64>) -> Result<Vec<u64>, Error>;

    /// The tokens of a part of the stream.
    ///
    /// # Errors
    /// If there are fewer tokens, the file cannot be read, or holds something that is no token there.
    fn read(&self, tokens: Range<u64>) -> Result<Vec<u32>, Error>;

    /// What else is known about a document.
    ///
    /// # Errors
    /// If there are fewer documents, the file cannot be read, or does not hold what it should there.
    fn fields(&self, document: u64) -> Result<Option<Fields>, Error>;
}

/// The place of a document in the stream.
///
/// # Errors
/// As [`Documents::ends`].
pub fn bounds(documents: &dyn Documents, document: u64) -> Result<Range<u64>, Error> {
    let start = start(documents, document)?;
    let end = documents.ends(document..document + 1)?;
    let end = end.first().copied().unwrap_or(start);
    Ok(start..end)
}

/// Where a document begins in the stream; the one after the last begins behind all tokens.
pub(crate) fn start(documents: &dyn Documents, document: u64) -> Result<u64, Error> {
    match document.checked_sub(1) {
        Some(before) => Ok(documents
            .ends(before..document)?
            .first()
            .copied()
            .unwrap_or(0)),
        None => Ok(0),
    }
}

/// The document that a token of the stream belongs to, found in as many reads as the number of documents has bits.
///
/// # Errors
/// As [`Documents::ends`].
pub fn document_at(documents: &dyn Documents, token: u64) -> Result<u64, Error> {
    let mut candidates = 0..documents.documents();
    while candidates.end - candidates.start > 1 {
        let middle = candidates.start + (candidates.end - candidates.start) / 2;
        if start(documents, middle)? <= token {
            candidates.start = middle;
        } else {
            candidates.end = middle;
        }
    }
    Ok(candidates.start)
}

/// Refuses a part of a file that has only `count` documents or tokens.
pub(crate) fn check_range(what: &'static str, range: &Range<u64>, count: u64) -> Result<(), Error> {
    match range.start <= range.end && range.end <= count {
        true => Ok(()),
        false => Err(Error::Limit {
            what,
            value: range.end,
            least: range.start,
            most: count,
        }),
    }
}

/// Refuses ends of documents that are out of order or behind the last token.
///
/// `documents` are the numbers that the ends belong to, and `before` is where the first begins.
pub(crate) fn check_ends(
    ends: &[u64],
    documents: Range<u64>,
    mut before: u64,
    tokens: u64,
    refuse: impl Fn(u64, String) -> Error,
) -> Result<(), Error> {
    for (document, &end) in documents.zip(ends) {
        if end < before {
            return Err(refuse(
                document,
                format!("it begins at token {before} and ends at token {end}"),
            ));
        }
        if end > tokens {
            return Err(refuse(
                document,
                format!("it ends at token {end} of {tokens}"),
            ));
        }
        before = end;
    }
    Ok(())
}

/// Opens a file of tokens: our own, or Megatron's by any of its two files or by what their names begin with.
///
/// # Errors
/// If there is no such file, or it is damaged or of another kind.
pub fn open(path: &str) -> Result<Arc<dyn Documents>, Error> {
    let (store, key) = locate(path)?;
    let prefix = key.strip_suffix(".idx").or(key.strip_suffix(".bin"));
    let index = format!("{}.idx", prefix.unwrap_or(&key));
    let is_pair = store.head(&key).map_err(failed(path))?.is_none() || prefix.is_some();
    if is_pair && store.head(&index).map_err(failed(path))?.is_some() {
        let prefix = prefix.unwrap_or(&key);
        let named = path.strip_suffix(".idx").or(path.strip_suffix(".bin"));
        let opened = Megatron::open(&store, prefix)?;
        return Ok(Arc::new(opened.named(named.unwrap_or(path))));
    }
    Ok(Arc::new(TokenFile::open(&store, &key)?.named(path)))
}
