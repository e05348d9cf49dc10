//! Documents of a run that are sealed as they should be, whatever they say: members changed, removed and repeated, tables of checksums and maps
//! of blocks in any text. The run is read and looked after; nothing panics, and nothing takes memory for what is not there.

#![no_main]

use cairn_checkpoint::Checkpoint;
use cairn_fuzz::run::{self, FILES};
use cairn_fuzz::{seal, sha256_hex};
use cairn_sharding::{Mesh, TensorSpec};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// A change to one document.
#[derive(Debug, Arbitrary)]
struct Change<'a> {
    document: u8,
    /// Which member, which of its members, and so on.
    path: [u8; 4],
    edit: Edit<'a>,
}

#[derive(Debug, Arbitrary)]
enum Edit<'a> {
    Odd(u8),
    Number(u64),
    Text(&'a str),
    Json(&'a str),
    Remove,
    Repeat,
    /// A member of any name.
    Add(&'a str, u8),
    /// The table of checksums, or the map of blocks.
    Line(bool, &'a str),
}

/// A sealed document, and the lines behind it.
#[derive(Debug, Clone)]
struct Document {
    /// Which of the files of the run it is.
    file: usize,
    members: Map<String, Value>,
    lines: Vec<String>,
}

static DOCUMENTS: LazyLock<Vec<Document>> = LazyLock::new(|| {
    let files = FILES.iter().enumerate();
    files
        .filter_map(|(file, (_, bytes))| Document::read(file, bytes))
        .collect()
});

static ODD: LazyLock<Vec<Value>> = LazyLock::new(|| {
    vec![
        json!(0),
        json!(1),
        json!(u64::MAX),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(1_u64 << 32),
        json!(-1),
        json!(1e300),
        json!(0.5),
        json!(""),
        json!(".."),
        json!("a/../b"),
        json!("/"),
        json!("0"),
        json!("18446744073709551615"),
        json!("tp=4294967296"),
        json!("tp=1000,dp=1000"),
        json!("u8[18446744073709551615]"),
        json!("u8[4294967296,4294967296]"),
        json!("u8[0]"),
        json!("f4[3@tp]"),
        json!("bf16[327680@tp]"),
        json!(null),
        json!([]),
        json!({}),
        json!([[]]),
        json!({"": null}),
        json!(true),
        json!(["delta"]),
        json!(2),
    ]
});

fuzz_target!(|input: (u8, u8, u8, Vec<Change>)| {
    let (look, task, honest, changes) = input;
    let mut documents = DOCUMENTS.clone();
    let count = documents.len();
    for change in &changes {
        change.apply(&mut documents[usize::from(change.document) % count]);
    }
    let mut files = FILES.clone();
    let mut digests = Vec::new();
    // Parts come first: manifests have their digests.
    documents.sort_by_key(|document| document.is_manifest());
    for document in &mut documents {
        if document.is_manifest() && !honest.is_multiple_of(4) {
            let folder = FILES[document.file].0.split('/').next().unwrap_or_default();
            let own = digests
                .iter()
                .filter(|(key, _): &&(&str, String)| key.starts_with(folder));
            let own: String = own.map(|(_, digest)| &digest[..16]).collect();
            document.members.insert("parts".into(), json!(own));
        }
        let (text, digest) = document.write();
        let key = FILES[document.file].0.as_str();
        if key.ends_with(".part") {
            digests.push((key, digest));
        }
        files[document.file].1 = text.into_bytes();
    }
    let store = run::store(&files);
    if let Some(checkpoint) = run::open(&store, u64::from(look & 1) + 1, look >> 1 == 0) {
        load(&checkpoint);
    }
    if task.is_multiple_of(8) {
        run::tend(&store, task / 8);
    }
});

/// Loads what the manifest says there is.
fn load(checkpoint: &Checkpoint) {
    for (name, spec) in checkpoint.manifest().layout.iter() {
        let text = format!("{}{:?}", spec.dtype(), spec.shape());
        if let Ok(whole) = TensorSpec::parse(&Mesh::single(), &text) {
            run::load(checkpoint, name, &whole);
        }
    }
}

impl Document {
    fn read(file: usize, bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines();
        let mut members: Map<String, Value> = serde_json::from_str(lines.next()?).ok()?;
        members.remove("sha256")?;
        let lines = lines.map(str::to_owned).collect();
        Some(Self {
            file,
            members,
            lines,
        })
    }

    fn is_manifest(&self) -> bool {
        FILES[self.file].0.ends_with("COMMIT")
    }

    /// The document's bytes, with digests that are right, and its own.
    fn write(&mut self) -> (String, String) {
        let digest = |index: usize| {
            self.lines
                .get(index)
                .map(|line| json!(sha256_hex(line.as_bytes())))
        };
        let (table, map) = (digest(0), digest(1));
        if let (Some(digest), Some(slot)) = (&table, self.members.get_mut("hashes_sha256")) {
            *slot = digest.clone();
        }
        if let Some(Value::Object(file)) = self.members.get_mut("file") {
            if let (Some(digest), Some(slot)) = (table, file.get_mut("crcs_sha256")) {
                *slot = digest;
            }
            if let (Some(digest), Some(Value::Object(delta))) = (map, file.get_mut("delta")) {
                delta.insert("map_sha256".into(), digest);
            }
        }
        let mut body = Value::Object(self.members.clone()).to_string();
        body.pop();
        let mut text = seal(&body);
        for line in &self.lines {
            text += line;
            text.push('\n');
        }
        (text, sha256_hex(body.as_bytes()))
    }
}

impl Change<'_> {
    fn apply(&self, document: &mut Document) {
        if let Edit::Line(map, text) = self.edit {
            let text = text.lines().next().unwrap_or_default();
            match document.lines.get_mut(usize::from(map)) {
                Some(line) => *line = text.to_owned(),
                None => document.lines.push(text.to_owned()),
            }
            return;
        }
        let mut members = Value::Object(std::mem::take(&mut document.members));
        self.change(&mut members, &self.path);
        if let Value::Object(changed) = members {
            document.members = changed;
        }
    }

    /// Changes what the path leads to.
    fn change(&self, value: &mut Value, path: &[u8]) {
        let [first, rest @ ..] = path else {
            return;
        };
        let first = usize::from(*first);
        // A step of the path beyond what is there changes the value itself.
        match value {
            Value::Object(members) if !members.is_empty() => {
                let Some(key) = members.keys().nth(first % members.len()).cloned() else {
                    return;
                };
                let at_end =
                    rest.first().is_none_or(|next| *next >= 128) || !is_nested(&members[&key]);
                match (&self.edit, at_end) {
                    (Edit::Remove, true) => drop(members.shift_remove(&key)),
                    (Edit::Add(name, odd), true) => {
                        members.insert(
                            (*name).to_owned(),
                            ODD[usize::from(*odd) % ODD.len()].clone(),
                        );
                    }
                    (_, true) => self.replace(&mut members[&key]),
                    (_, false) => self.change(&mut members[&key], rest),
                }
            }
            Value::Array(items) if !items.is_empty() => {
                let index = first % items.len();
                let at_end =
                    rest.first().is_none_or(|next| *next >= 128) || !is_nested(&items[index]);
                match (&self.edit, at_end) {
                    (Edit::Remove, true) => drop(items.remove(index)),
                    (Edit::Repeat, true) => items.push(items[index].clone()),
                    (_, true) => self.replace(&mut items[index]),
                    (_, false) => self.change(&mut items[index], rest),
                }
            }
            _ => {}
        }
    }

    fn replace(&self, value: &mut Value) {
        match self.edit {
            Edit::Odd(odd) => *value = ODD[usize::from(odd) % ODD.len()].clone(),
            Edit::Number(number) => *value = json!(number),
            Edit::Text(text) => *value = json!(text),
            Edit::Json(text) => {
                if let Ok(new) = serde_json::from_str(text) {
                    *value = new;
                }
            }
            Edit::Remove | Edit::Repeat | Edit::Add(..) | Edit::Line(..) => {}
        }
    }
}

fn is_nested(value: &Value) -> bool {
    matches!(value, Value::Object(_) | Value::Array(_))
}
