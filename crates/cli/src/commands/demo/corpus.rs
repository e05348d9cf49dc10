//! Text to train on: stories that a small grammar tells.

use cairn::data::{Bytes, TokenWriter, Tokenizer, Width};
use cairn::kernels::random::Stream;
use cairn::store::{Local, Store};

use crate::error::Error;

/// The seed of the stories.
const SEED: u64 = 1;
const SENTENCES_OF_A_STORY: u64 = 6;

const PLACES: &[&str] = &[
    "on the hill",
    "by the river",
    "in the valley",
    "under the bridge",
    "behind the mill",
    "near the old wall",
];
const NAMES: &[&str] = &[
    "the mason",
    "the shepherd",
    "a traveller",
    "the miller",
    "her sister",
    "the ferryman",
    "an old fox",
    "the raven",
];
const ACTS: &[&str] = &[
    "stacked", "carried", "counted", "lost", "found", "painted", "buried", "traded",
];
const NUMBERS: &[&str] = &["two", "three", "seven", "nine", "a dozen"];
const KINDS: &[&str] = &["flat", "heavy", "white", "round", "mossy", "broken"];
const THINGS: &[&str] = &[
    "stones", "apples", "lanterns", "letters", "bells", "feathers",
];
const TIMES: &[&str] = &[
    "before dawn",
    "in the rain",
    "every evening",
    "at noon",
    "when the wind turned",
];
const ENDS: &[&str] = &[
    "and went home",
    "and said nothing",
    "and marked the path",
    "and waited for the others",
    "and began again",
];

/// Writes about `len_bytes` of stories as a token file of single bytes.
pub(super) fn write(store: &Local, name: &str, len_bytes: usize) -> Result<(), Error> {
    let vocabulary = Bytes.vocabulary();
    let width = Width::for_vocabulary(vocabulary);
    let store: std::sync::Arc<dyn Store> = std::sync::Arc::new(store.clone());
    let mut writer = TokenWriter::create(&store, name, width, Some(vocabulary))?;
    let (mut number, mut written) = (0, 0);
    while written < len_bytes {
        let story = story(number);
        let mut tokens = Bytes.encode(&story)?;
        tokens.push(Bytes::EOS);
        writer.push(&tokens, None)?;
        written += tokens.len();
        number += 1;
    }
    writer.finish()?;
    Ok(())
}

/// The story of a number.
fn story(number: u64) -> String {
    let sentences =
        (0..SENTENCES_OF_A_STORY).map(|at| sentence(number * SENTENCES_OF_A_STORY + at));
    sentences.collect::<Vec<_>>().join(" ")
}

/// `By the river the mason stacked seven flat stones at noon, and went home.`
fn sentence(number: u64) -> String {
    let words = [PLACES, NAMES, ACTS, NUMBERS, KINDS, THINGS, TIMES, ENDS];
    let stream = Stream::new(SEED).with(number);
    let drawn = [stream.block(0), stream.block(1)].concat();
    let picked = words.iter().zip(drawn);
    let picked: Vec<&str> = picked
        .map(|(words, drawn)| words[drawn as usize % words.len()])
        .collect();
    let mut text = format!("{}, {}.", picked[..7].join(" "), picked[7]);
    text[..1].make_ascii_uppercase();
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_is_the_same_every_time_and_not_like_another() {
        assert_eq!(story(3), story(3));
        assert_ne!(story(3), story(4));
        let first = sentence(0);
        assert!(
            first.ends_with('.') && first.starts_with(char::is_uppercase),
            "{first}"
        );
        assert!(story(0).is_ascii());
    }
}
