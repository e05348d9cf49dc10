//! Documents of text come out whole, and what is wrong is told with its line.

use super::{BLOCK_BYTES, Format, Keep, Text, Texts};
use crate::Error;
use crate::testing::fields;
use cairn_store::{Local, PutMode, Store};
use proptest::prelude::*;
use serde_json::json;

/// Reads all documents of a file with this content.
fn read(content: &[u8], format: Format) -> Result<Vec<Text>, Error> {
    let folder = tempfile::tempdir().unwrap();
    let store = Local::new(folder.path());
    store.put("in.jsonl", content, PutMode::Create).unwrap();
    let path = folder.path().join("in.jsonl");
    let texts = Texts::open(path.to_str().unwrap(), format)?;
    texts
        .collect::<Result<_, _>>()
        .map_err(|error| match error {
            Error::Line { line, reason, .. } => Error::Line {
                file: "in.jsonl".into(),
                line,
                reason,
            },
            other => other,
        })
}

fn lines_of_json(keep: Keep) -> Format {
    Format::of("in.jsonl", "text", &keep)
}

fn paragraphs(content: &str) -> Vec<(u64, String)> {
    let texts = read(content.as_bytes(), Format::Text).unwrap();
    texts
        .into_iter()
        .map(|text| (text.line, text.text))
        .collect()
}

#[test]
fn the_name_of_a_file_tells_its_format() {
    assert_eq!(Format::of("a/b.txt", "text", &Keep::Nothing), Format::Text);
    assert!(
        matches!(Format::of("a.jsonl", "body", &Keep::Nothing), Format::Json { field, .. } if field == "body")
    );
}

#[test]
fn blank_lines_separate_paragraphs() {
    let right = [(2, "one\ntwo".to_string()), (6, "  three é".to_string())];
    assert_eq!(paragraphs("\none\ntwo\n\n \t\n  three é"), right);
    assert_eq!(
        paragraphs("\r\none\r\ntwo\r\n\r\n \t\r\n  three é\r\n"),
        right
    );
    assert_eq!(paragraphs(""), []);
    assert_eq!(paragraphs("\n\n"), []);
    assert_eq!(paragraphs("\u{feff}one"), [(1, "one".into())]);
}

#[test]
fn lines_of_json_carry_their_other_fields() {
    let content = "{\"id\": 1, \"text\": \"Füße\\n\", \"tags\": [\"a\"]}\r\n\n  \n{\"text\": \"\"}";
    let all = read(content.as_bytes(), lines_of_json(Keep::Everything)).unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!((all[0].text.as_str(), all[0].line), ("Füße\n", 1));
    assert_eq!(all[0].fields, Some(fields(json!({"id": 1, "tags": ["a"]}))));
    assert_eq!(
        (all[1].text.as_str(), all[1].line, &all[1].fields),
        ("", 4, &None)
    );
    assert_eq!(all[0].len_bytes + all[1].len_bytes, content.len() as u64);
    let some = read(
        content.as_bytes(),
        lines_of_json(Keep::Named(vec!["id".into(), "none".into()])),
    )
    .unwrap();
    assert_eq!(some[0].fields, Some(fields(json!({"id": 1}))));
    assert_eq!(
        read(content.as_bytes(), lines_of_json(Keep::Nothing)).unwrap()[0].fields,
        None
    );
}

#[test]
fn a_bad_line_is_named() {
    let message = |content: &[u8]| {
        read(content, lines_of_json(Keep::Nothing))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        message(b"{\"text\": \"a\"}\n\n{\"text\": }\n"),
        "line 3 of `in.jsonl` is no JSON object: expected value at column 10"
    );
    assert!(message(b"[1]").starts_with("line 1 of `in.jsonl` is no JSON object: "));
    assert_eq!(
        message(b"{\"body\": \"a\"}"),
        "line 1 of `in.jsonl` has no field `text`"
    );
    assert_eq!(
        message(b"{\"text\": 1}"),
        "line 1 of `in.jsonl` has a field `text` that is no string"
    );
    assert_eq!(
        message(b"{}\n\xff"),
        "line 1 of `in.jsonl` has no field `text`"
    );
    assert_eq!(
        message(b"\n{\xff}"),
        "line 2 of `in.jsonl` is not UTF-8 from byte 2 on"
    );
}

#[test]
fn nothing_follows_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let store = Local::new(folder.path());
    store
        .put("a", b"{}\n{\"text\": \"a\"}", PutMode::Create)
        .unwrap();
    let path = folder.path().join("a");
    let mut texts = Texts::open(path.to_str().unwrap(), lines_of_json(Keep::Nothing)).unwrap();
    texts.next().unwrap().unwrap_err();
    assert!(texts.next().is_none());
}

#[test]
fn lines_may_be_longer_than_a_block() {
    let long = "x".repeat(2 * BLOCK_BYTES + 17);
    assert_eq!(
        paragraphs(&format!("{long}\n\n{long}")),
        [(1, long.clone()), (3, long)]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_survives_json(texts in prop::collection::vec(".*", 0..6), ends in prop::sample::select(vec!["\n", "\r\n", "\n\n"])) {
        let lines: Vec<String> = texts.iter().map(|text| json!({"text": text}).to_string() + ends).collect();
        let read = read(lines.concat().as_bytes(), lines_of_json(Keep::Nothing)).unwrap();
        prop_assert_eq!(read.into_iter().map(|text| text.text).collect::<Vec<_>>(), texts);
    }
}
