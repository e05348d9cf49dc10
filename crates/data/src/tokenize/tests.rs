//! Texts become the same tokens with any number of threads.

use super::{BATCH_BYTES, Tokenize, Tokenized};
use crate::testing::{fields, memory};
use crate::{Bytes, Documents, Error, Text, TokenFile, TokenWriter, Width, bounds};
use serde_json::json;
use std::num::NonZeroUsize;

fn text(text: &str) -> Result<Text, Error> {
    let (text, line, len_bytes) = (text.to_owned(), 1, text.len() as u64);
    Ok(Text {
        text,
        fields: None,
        line,
        len_bytes,
    })
}

fn tokenize(
    texts: Vec<Result<Text, Error>>,
    threads: usize,
) -> Result<(Tokenized, TokenFile), Error> {
    let store = memory();
    let mut writer = TokenWriter::create(&store, "a", Width::U16, Some(257))?;
    let tokenize = Tokenize {
        append: Some(Bytes::EOS),
        threads: NonZeroUsize::new(threads).unwrap(),
    };
    let mut progress = 0;
    let done = tokenize.run(&Bytes, texts, &mut writer, |bytes| progress += bytes)?;
    assert_eq!(progress, done.text_bytes);
    assert_eq!(writer.counts(), (done.documents, done.tokens));
    writer.finish()?;
    Ok((done, TokenFile::open(&store, "a")?))
}

#[test]
fn documents_keep_their_order_and_fields() {
    for threads in [1, 3, 8] {
        let texts: Vec<String> = (0..7).map(|number| format!("text {number} é")).collect();
        let mut all: Vec<_> = texts.iter().map(|each| text(each)).collect();
        all.insert(2, text(""));
        let about = fields(json!({"id": 3}));
        all[4].as_mut().unwrap().fields = Some(about.clone());
        let (done, file) = tokenize(all, threads).unwrap();
        assert_eq!((done.documents, done.empty), (7, 1));
        for (number, text) in (0..).zip(&texts) {
            let mut tokens = file.read(bounds(&file, number).unwrap()).unwrap();
            assert_eq!(tokens.pop(), Some(Bytes::EOS));
            assert_eq!(tokens, text.bytes().map(u32::from).collect::<Vec<_>>());
        }
        assert_eq!(file.fields(3).unwrap(), Some(about));
    }
}

#[test]
fn more_text_than_is_worked_on_at_once_is_all_there() {
    let long = "y".repeat(BATCH_BYTES / 2 + 1);
    let (done, file) = tokenize((0..5).map(|_| text(&long)).collect(), 2).unwrap();
    assert_eq!(done.documents, 5);
    assert_eq!(file.tokens(), 5 * (long.len() as u64 + 1));
}

#[test]
fn a_bad_text_ends_it_all() {
    let bad = Error::Line {
        file: "a".into(),
        line: 7,
        reason: "is bad".into(),
    };
    let error = tokenize(vec![text("a"), Err(bad)], 2).unwrap_err();
    assert_eq!(error.to_string(), "line 7 of `a` is bad");
}
