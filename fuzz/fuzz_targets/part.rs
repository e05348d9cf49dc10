//! A part: its members on the first line, its table of checksums on the second.

#![no_main]

use cairn_checkpoint::testing::parse_part;
use cairn_fuzz::seal;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = parse_part(text.as_bytes());
    let (members, table) = text.split_once('\n').unwrap_or((text, ""));
    let _ = parse_part(format!("{}{table}\n", seal(members)).as_bytes());
});
