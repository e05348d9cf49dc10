//! `cairn tokenize`: what it writes, and which lines it refuses.

use crate::fixture::{Place, check};
use cairn::data::{bounds, open};
use serde_json::json;

const TOKENIZER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../data/tests/fixtures/tokenizer.json"
);

fn place(files: &[(&str, &str)]) -> Place {
    let place = Place::empty();
    for (name, content) in files {
        std::fs::write(place.path(name), content).unwrap();
    }
    place
}

/// The tokens of every document of a file.
fn documents(place: &Place, name: &str) -> Vec<Vec<u32>> {
    let file = open(place.path(name).to_str().unwrap()).unwrap();
    let read = |document| file.read(bounds(file.as_ref(), document).unwrap()).unwrap();
    (0..file.documents()).map(read).collect()
}

#[test]
fn the_folder_of_a_tokenizer_may_be_where_we_are() {
    let place = place(&[("a.txt", "one\n")]);
    std::fs::copy(TOKENIZER, place.path("tokenizer.json")).unwrap();
    std::fs::create_dir(place.path("inner")).unwrap();
    for (number, folder) in [".", "./", "inner/.."].into_iter().enumerate() {
        let target = format!("{number}.tokens");
        let output = place.output(&["tokenize", "a.txt", &target, "--tokenizer", folder]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{text}");
    }
}

#[test]
fn text_becomes_bytes() {
    let place = place(&[("a.txt", "one\r\n\r\n\r\nzwölf\n")]);
    check!(place.cairn(&["tokenize", "a.txt", "a.tokens", "--tokenizer", "bytes", "--append-eos"]), @"
    exit code 0
    ----- stdout
    wrote       `a.tokens`, 104 B
    tokens      11 of 2 bytes
    documents   2
    text        9 B
    vocabulary  257
    each ends   with token 256
    ----- stderr
    wrote 104 B in [SECONDS] s
    ");
    assert_eq!(
        documents(&place, "a.tokens"),
        [
            vec![111, 110, 101, 256],
            vec![122, 119, 195, 182, 108, 102, 256]
        ]
    );
    check!(place.cairn(&["inspect", "a.tokens"]), @"
    exit code 0
    ----- stdout
    path         a.tokens
    format       tokens
    tokens       11
    documents    2
    mean length  5.5
    vocabulary   257
    ----- stderr
    ");
}

#[test]
fn json_lines_of_several_files_keep_their_order() {
    let place = place(&[
        (
            "a.jsonl",
            "{\"body\": \"the stones\", \"id\": 7}\n\n{\"body\": \"\"}\n",
        ),
        (
            "b.jsonl",
            "{\"body\": \" on and on \", \"id\": 8, \"x\": 1}",
        ),
    ]);
    let report = place.json(&[
        "tokenize",
        "a.jsonl",
        "b.jsonl",
        "out/all.tokens",
        "--tokenizer",
        TOKENIZER,
        "--field",
        "body",
        "--keep",
        "id",
    ]);
    assert_eq!(report["documents"], json!(2));
    assert_eq!(report["empty_documents"], json!(1));
    assert_eq!(
        (&report["vocabulary"], &report["token_bytes"]),
        (&json!(288), &json!(2))
    );
    assert_eq!(
        documents(&place, "out/all.tokens"),
        [vec![259, 275], vec![263, 274, 263, 221]]
    );
    let file = open(place.path("out/all.tokens").to_str().unwrap()).unwrap();
    assert_eq!(json!(file.fields(1).unwrap()), json!({"id": 8}));
    assert_eq!(
        place.json(&["inspect", "out/all.tokens"]),
        json!({"path": "out/all.tokens", "format": "tokens", "documents": 2, "tokens": 6, "mean_tokens": 3.0, "vocabulary": 288})
    );
}

#[test]
fn a_bad_line_is_told_and_nothing_is_written() {
    let place = place(&[("a.jsonl", "{\"text\": \"one\"}\n{\"text\": 'two'}\n")]);
    check!(place.cairn(&["tokenize", "a.jsonl", "a.tokens", "--tokenizer", "bytes"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: line 2 of `a.jsonl` is no JSON object: expected value at column 10

    hint: repair or remove the line
    ");
    assert_eq!(place.files(".", "").len(), 1);
}

#[test]
fn a_file_that_exists_stays() {
    let place = place(&[("a.txt", "one"), ("a.tokens", "precious")]);
    check!(place.cairn(&["tokenize", "a.txt", "a.tokens", "--tokenizer", "bytes"]), @"
    exit code 1
    ----- stdout
    ----- stderr
    error: cannot use the file `a.tokens`
      object `a.tokens` already exists

    hint: delete it, or choose another name
    ");
    assert_eq!(std::fs::read(place.path("a.tokens")).unwrap(), b"precious");
}

#[test]
fn what_ends_documents_must_be_known() {
    let place = place(&[("a.txt", "one")]);
    check!(place.cairn(&["tokenize", "a.txt", "a.tokens", "--tokenizer", "bytes", "--eos", "</s>"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: tokenizer `bytes` has no token `</s>`

    hint: name the token that ends documents with `--eos`
    ");
    check!(place.cairn(&["tokenize", "a.txt", "a.tokens", "--tokenizer", "models/none"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: cannot use the file `models/none`
      object `tokenizer.json` does not exist
    ");
}

#[test]
fn a_damaged_file_of_tokens_is_told_by_inspect() {
    let place = place(&[("a.txt", "one")]);
    place.cairn(&["tokenize", "a.txt", "a.tokens", "--tokenizer", "bytes"]);
    let bytes = std::fs::read(place.path("a.tokens")).unwrap();
    std::fs::write(place.path("a.tokens"), &bytes[..bytes.len() - 1]).unwrap();
    check!(place.cairn(&["inspect", "a.tokens"]), @"
    exit code 3
    ----- stdout
    ----- stderr
    error: `a.tokens` is damaged: with 3 tokens in 1 documents it has 80 bytes, and 79 are there

    hint: use another copy of the file, or tokenize the text again
    ");
}
