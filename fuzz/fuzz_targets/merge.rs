//! Models to be merged whose small files were changed: configs, tokenizers and adapters. The merge is refused, or is written to its end and has
//! the rows that its vocabulary says.

#![no_main]

use cairn_formats::safetensors::{Entry, encode};
use cairn_merge::{Config, Merge, Options, WriteOptions};
use cairn_store::{Memory, Store};
use cairn_tensor::DType;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Larger results are planned, but not written.
const MAX_WRITE_BYTES: u64 = 1 << 20;

const FILES: [&str; 5] = [
    "first/tokenizer.json",
    "second/tokenizer.json",
    "second/config.json",
    "adapter/adapter_config.json",
    "first/config.json",
];

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    way: u8,
    /// The whole text of a file.
    texts: Vec<(u8, &'a str)>,
    /// Which byte of a file becomes which.
    changes: Vec<(u8, u16, u8)>,
}

fuzz_target!(|input: Input| {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    write_models(path);
    for (file, text) in &input.texts {
        write(path, name(*file), text.as_bytes());
    }
    for (file, at, byte) in &input.changes {
        let file = path.join(name(*file));
        let mut bytes = fs::read(&file).expect("it is there");
        if let Some(place) = bytes.get_mut(usize::from(*at)) {
            *place = *byte;
        }
        fs::write(&file, bytes).expect("it is there");
    }
    let config = Config::parse(&config(path, input.way)).expect("a config of this file");
    let options = Options {
        threads: 1,
        ..Options::default()
    };
    let merge = match Merge::new(config, options) {
        Ok(merge) => merge,
        Err(error) => return drop(error.to_string()),
    };
    if merge.cost().write_bytes > MAX_WRITE_BYTES {
        return;
    }
    let target: Arc<dyn Store> = Arc::new(Memory::new());
    let options = WriteOptions {
        resume: false,
        replace: false,
        dry_run: false,
        progress: Arc::default(),
    };
    let _ = merge.write(&target, &options);
});

fn name(file: u8) -> &'static str {
    FILES[usize::from(file) % FILES.len()]
}

fn write(path: &Path, name: &str, bytes: &[u8]) {
    fs::write(path.join(name), bytes).expect("room for a small file");
}

fn config(path: &Path, way: u8) -> String {
    let path = path.display();
    let models = format!("models:\n  - model: {path}/first\n  - model: {path}/second\n");
    match way % 4 {
        0 => format!(
            "merge_method: linear\nparameters: {{weight: 0.5}}\ntokenizer_source: union\n{models}"
        ),
        1 => format!(
            "merge_method: ties\nparameters: {{weight: 0.5}}\nbase_model: {path}/first\ntokenizer_source: base\n{models}"
        ),
        2 => {
            format!("merge_method: passthrough\nmodels:\n  - model: {path}/first+{path}/adapter\n")
        }
        _ => format!("merge_method: linear\nparameters: {{weight: 0.5}}\n{models}"),
    }
}

fn write_models(path: &Path) {
    for (model, tokens) in [("first", ["a", "b", "c"]), ("second", ["a", "c", "d"])] {
        let matrices = [
            ("model.embed_tokens.weight", [3, 2]),
            ("model.layers.0.mlp.up_proj.weight", [2, 2]),
        ];
        save(path, model, "model.safetensors", &matrices);
        let vocab: Vec<String> = tokens
            .iter()
            .enumerate()
            .map(|(id, token)| format!("\"{token}\":{id}"))
            .collect();
        let tokenizer = format!(
            "{{\"version\":\"1.0\",\"added_tokens\":[{{\"id\":2,\"content\":\"{}\"}}],\"model\":{{\"type\":\"BPE\",\"vocab\":{{{}}},\"merges\":[]}}}}",
            tokens[2],
            vocab.join(",")
        );
        write(
            path,
            &format!("{model}/tokenizer.json"),
            tokenizer.as_bytes(),
        );
        write(
            path,
            &format!("{model}/config.json"),
            b"{\"model_type\":\"llama\",\"vocab_size\":3,\"num_hidden_layers\":1}",
        );
    }
    let low = "base_model.model.model.layers.0.mlp.up_proj";
    let (a, b) = (
        format!("{low}.lora_A.weight"),
        format!("{low}.lora_B.weight"),
    );
    save(
        path,
        "adapter",
        "adapter_model.safetensors",
        &[(&a, [1, 2]), (&b, [2, 1])],
    );
    write(
        path,
        "adapter/adapter_config.json",
        b"{\"r\":1,\"lora_alpha\":2.0,\"alpha_pattern\":{\"up_proj\":4}}",
    );
}

fn save(path: &Path, folder: &str, name: &str, tensors: &[(&str, [usize; 2])]) {
    fs::create_dir_all(path.join(folder)).expect("a folder");
    let mut begin = 0;
    let entries = tensors.iter().map(|(name, shape)| {
        let end = begin + 4 * (shape[0] * shape[1]) as u64;
        let entry = Entry {
            name: name.to_string(),
            dtype: DType::F32,
            shape: shape.to_vec(),
            begin,
            end,
        };
        begin = end;
        entry
    });
    let entries: Vec<Entry> = entries.collect();
    let mut bytes = encode(&entries, &[], 8).expect("a small header");
    bytes.extend((0..begin / 4).flat_map(|at| (at as f32).to_le_bytes()));
    write(path, &format!("{folder}/{name}"), &bytes);
}
