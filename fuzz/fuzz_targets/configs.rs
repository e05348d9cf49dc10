//! What people write: configs of merges, models and runs, and the small languages of options. What prints itself reads back the same.

#![no_main]

use cairn_checkpoint::ema::Ema;
use cairn_checkpoint::retention::{Best, Within};
use cairn_checkpoint::signing::{PublicKey, SecretKey};
use cairn_checkpoint::{
    Launch, Pattern, ShardRules, Timeline, parse_age, parse_step_folder, step_folder,
};
use cairn_merge::Config;
use cairn_model::ModelConfig;
use cairn_sharding::Mesh;
use cairn_train::Settings;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|input: (u8, &str)| {
    let (kind, text) = input;
    match kind % 10 {
        0 => drop(Config::parse(text).map_err(|error| error.to_string())),
        1 => drop(ModelConfig::from_json(text).map_err(|error| error.to_string())),
        2 => run(text, &[]),
        3 => run("", &text.lines().map(str::to_owned).collect::<Vec<_>>()),
        4 => words(text),
        5 => {
            if let Ok(timeline) = Timeline::from_json("timeline", text.as_bytes()) {
                let _ = (timeline.headline(), timeline.stall(), timeline.durable());
                let again = Timeline::from_json("timeline", timeline.to_json().as_bytes());
                assert_eq!(again.expect("what we write, we read"), timeline);
                let _ = timeline.coarse(3);
            }
        }
        6 => rules(text),
        7 => {
            let pairs: Vec<(&str, &str)> = text
                .lines()
                .filter_map(|line| line.split_once('='))
                .collect();
            let lookup = |name: &str| {
                pairs
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| value.to_string())
            };
            let _ = Launch::from_lookup(&lookup);
        }
        8 => {
            if let Ok(ema) = serde_json::from_str::<Ema>(text) {
                let again = serde_json::to_string(&ema).expect("it is JSON");
                assert_eq!(
                    serde_json::from_str::<Ema>(&again).expect("what we write, we read"),
                    ema
                );
            }
        }
        _ => {
            if let Ok(settings) = serde_json::from_str::<Settings>(text) {
                let again = serde_json::to_string(&settings).expect("it is JSON");
                assert_eq!(
                    serde_json::from_str::<Settings>(&again).expect("what we write, we read"),
                    settings
                );
            }
        }
    }
});

fn run(text: &str, settings: &[String]) {
    let parsed = cairn_train::config::parse("run.toml", text, Path::new("nowhere"), settings);
    let _ = parsed.map_err(|problems| problems.to_string());
}

fn words(text: &str) {
    if let Ok(best) = text.parse::<Best>() {
        assert_eq!(String::from(best.clone()).parse::<Best>().ok(), Some(best));
    }
    if let Ok(within) = text.parse::<Within>() {
        assert_eq!(
            String::from(within.clone()).parse::<Within>().ok(),
            Some(within)
        );
    }
    if let Ok(key) = text.parse::<PublicKey>() {
        assert_eq!(key.to_string().parse::<PublicKey>().ok(), Some(key));
    }
    if let Some(step) = parse_step_folder(text) {
        assert_eq!(step_folder(step), text);
    }
    let _ = (text.parse::<SecretKey>(), parse_age(text));
}

fn rules(text: &str) {
    let (mesh, rules) = text.split_once('\n').unwrap_or((text, ""));
    if let Ok(mesh) = mesh.parse::<Mesh>() {
        let _ = ShardRules::parse(mesh, &rules.lines().collect::<Vec<_>>());
    }
    let pattern: Pattern = rules.parse().unwrap_or_else(|never| match never {});
    let _ = pattern.matches(text);
}
