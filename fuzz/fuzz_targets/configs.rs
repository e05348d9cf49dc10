//! What people write: configs of merges, models and runs, and the small languages of options.

#![no_main]

use cairn_checkpoint::retention::{Best, Within};
use cairn_checkpoint::signing::{PublicKey, SecretKey};
use cairn_checkpoint::{Launch, Pattern, ShardRules, Timeline, parse_age};
use cairn_merge::Config;
use cairn_model::ModelConfig;
use cairn_sharding::Mesh;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|input: (u8, &str)| {
    let (kind, text) = input;
    match kind % 8 {
        0 => drop(Config::parse(text).map_err(|error| error.to_string())),
        1 => drop(ModelConfig::from_json(text).map_err(|error| error.to_string())),
        2 => drop(cairn_train::config::parse("run.toml", text, Path::new("nowhere"), &[]).map_err(|problems| problems.to_string())),
        3 => {
            let settings: Vec<String> = text.lines().map(str::to_owned).collect();
            let _ = cairn_train::config::parse("run.toml", "", Path::new("nowhere"), &settings);
        }
        4 => {
            let _ = (text.parse::<Best>(), text.parse::<Within>(), parse_age(text));
            let _ = (text.parse::<PublicKey>(), text.parse::<SecretKey>());
        }
        5 => drop(Timeline::from_json("timeline", text.as_bytes())),
        6 => {
            let (mesh, rules) = text.split_once('\n').unwrap_or((text, ""));
            if let Ok(mesh) = mesh.parse::<Mesh>() {
                let _ = ShardRules::parse(mesh, &rules.lines().collect::<Vec<_>>());
            }
            let pattern: Pattern = rules.parse().unwrap_or_else(|never| match never {});
            let _ = pattern.matches(text);
        }
        _ => {
            let mut values = text.lines();
            let pairs: Vec<(&str, &str)> = values.by_ref().filter_map(|line| line.split_once('=')).collect();
            let lookup = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
            let _ = Launch::from_lookup(&lookup);
        }
    }
});
