//! What ranks save: a few bytes that tell which launch and step they are from.

use cairn_checkpoint::{Checkpoint, Error, LoadOptions, State, Target};
use cairn_sharding::{Mesh, TensorSpec};
use serde_json::json;

/// The tensor that ranks share out, and its length in bytes.
const SPLIT: (&str, usize) = ("split", 12);
/// The tensor that all ranks hold.
const WHOLE: (&str, usize) = ("whole", 5);

/// How many steps in a row have the same tensors, where saves are deltas.
const STEPS_ALIKE: u64 = 3;

/// Everything that one launch saves as one step.
pub(crate) fn number(launch: usize, step: u64) -> u64 {
    launch as u64 * 1000 + step
}

/// What the tensors of a step are drawn from. Where saves are deltas, several steps in a row have the same, in every launch.
pub(crate) fn picture(content: u64, step: u64, delta: bool) -> u64 {
    match delta {
        true => step / STEPS_ALIKE,
        false => content,
    }
}

/// A rank's memory.
pub(crate) struct Memory {
    content: u64,
    picture: u64,
    rank: usize,
    size: usize,
    split: Vec<u8>,
    whole: Vec<u8>,
}

impl Memory {
    pub(crate) fn new(content: u64, picture: u64, rank: usize, size: usize) -> Self {
        let all = bytes(SPLIT, picture);
        let share = all.len().div_ceil(size);
        Self {
            content,
            picture,
            rank,
            size,
            split: all[rank * share..((rank + 1) * share).min(all.len())].to_vec(),
            whole: bytes(WHOLE, picture),
        }
    }

    pub(crate) fn state(&self) -> State<'_> {
        let mesh: Mesh = format!("tp={}", self.size).parse().expect("a mesh");
        let split = TensorSpec::parse(&mesh, &format!("u8[{}@tp]", SPLIT.1)).expect("a spec");
        let whole = TensorSpec::parse(&mesh, &format!("u8[{}]", WHOLE.1)).expect("a spec");
        let mut state = State::new(self.rank);
        state
            .tensor(SPLIT.0, &split, &self.split)
            .expect("a tensor that fits");
        state
            .tensor(WHOLE.0, &whole, &self.whole)
            .expect("a tensor that fits");
        state.value("content", json!(self.content));
        state.value("picture", json!(self.picture));
        state.rank_value("content", json!(self.content));
        state
    }
}

/// Memory to load a step into, on one rank.
pub(crate) struct Loaded {
    split: Vec<u8>,
    whole: Vec<u8>,
}

impl Loaded {
    pub(crate) fn new() -> Self {
        Self {
            split: vec![0xAA; SPLIT.1],
            whole: vec![0xAA; WHOLE.1],
        }
    }

    pub(crate) fn targets(&mut self) -> Vec<Target<'_>> {
        let spec =
            |len: usize| TensorSpec::parse(&Mesh::single(), &format!("u8[{len}]")).expect("a spec");
        let target = |name, len, bytes| Target::new(name, &spec(len), 0, bytes).expect("it fits");
        vec![
            target(SPLIT.0, SPLIT.1, &mut self.split),
            target(WHOLE.0, WHOLE.1, &mut self.whole),
        ]
    }

    /// What differs from what the checkpoint says that it is.
    ///
    /// # Errors
    /// If a part of the checkpoint cannot be read.
    pub(crate) fn difference(&self, checkpoint: &Checkpoint) -> Result<Option<String>, Error> {
        let number = |name: &str| checkpoint.values().get(name)?.as_u64();
        let (Some(content), Some(picture)) = (number("content"), number("picture")) else {
            return Ok(Some("it does not say what it is".into()));
        };
        for rank in 0..checkpoint.manifest().writers() {
            let values = checkpoint.rank_values(rank)?.unwrap_or_default();
            if values.get("content") != Some(&json!(content)) {
                return Ok(Some(format!("rank {rank} saved something else")));
            }
        }
        let same = self.split == bytes(SPLIT, picture) && self.whole == bytes(WHOLE, picture);
        Ok((!same).then(|| format!("its bytes are not those of {picture}")))
    }
}

/// On one thread, because more would only read the same few bytes.
pub(crate) fn load_options() -> LoadOptions {
    LoadOptions {
        threads: 1,
        ..LoadOptions::default()
    }
}

fn bytes((name, len): (&str, usize), content: u64) -> Vec<u8> {
    let mut random = crate::random::Random::new(content, name);
    (0..len).map(|_| random.next().to_le_bytes()[0]).collect()
}
