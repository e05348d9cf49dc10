//! Pickles: whatever is accepted names nothing outside the list, and turns into JSON that is written and read the same.

#![no_main]

use cairn_formats::pickle::{Bytes, Writer, parse};
use cairn_formats::plain::{from_pickle, policy, to_pickle};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(pickle) = parse("fuzz", bytes, &policy()) else {
        return;
    };
    let Ok(value) = from_pickle("fuzz", &Bytes(bytes), pickle.root()) else {
        return;
    };
    let mut writer = Writer::new();
    if to_pickle(&value, &mut writer).is_none() {
        return;
    }
    let written = writer.finish();
    let again = parse("fuzz", &written, &policy()).expect("what we write, we read");
    let again =
        from_pickle("fuzz", &Bytes(&written), again.root()).expect("it was written from JSON");
    assert_eq!(again, value);
});
