//! A part: its members on the first line, its table of checksums on the second, its map of blocks on the third. What is accepted comes back the
//! same when it is written again.

#![no_main]

use cairn_checkpoint::testing::{parse_draft, parse_part};
use cairn_fuzz::{seal, sha256_hex};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fuzz_target!(|text: &str| {
    // As it is, it meets the seal; sealed, what lies behind it.
    let _ = parse_part(text.as_bytes());
    let _ = parse_draft(text.as_bytes());
    let (members, rest) = text.split_once('\n').unwrap_or((text, ""));
    let rest = if rest.ends_with('\n') {
        rest.to_owned()
    } else {
        format!("{rest}\n")
    };
    let sealed = format!("{}{rest}", seal(&fitting(members, &rest)));
    let _ = parse_part(sealed.as_bytes());
    let _ = parse_draft(format!("{}{rest}", seal(members)).as_bytes());
});

/// The members with the digests of the lines behind them.
fn fitting(members: &str, rest: &str) -> String {
    let Ok(mut document) = serde_json::from_str::<Value>(&format!("{members}}}")) else {
        return members.to_owned();
    };
    let mut lines = rest.lines().map(|line| json!(sha256_hex(line.as_bytes())));
    let (table, map) = (
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
    );
    if let Some(file) = document.get_mut("file").and_then(Value::as_object_mut) {
        file.insert("crcs_sha256".into(), table);
        if let Some(delta) = file.get_mut("delta").and_then(Value::as_object_mut) {
            delta.insert("map_sha256".into(), map);
        }
    }
    let mut text = document.to_string();
    text.pop();
    text
}
