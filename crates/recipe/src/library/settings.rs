//! What templates are filled with.

use serde_json::Value;
use std::collections::BTreeMap;

/// Values by name, as text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings(BTreeMap<String, String>);

impl Settings {
    /// What a model's `config.json` says: its plain values, and those of its `text_config`.
    pub fn from_config(config: &Value) -> Self {
        let mut settings = Self::default();
        for part in [config.get("text_config"), Some(config)] {
            let entries = part.and_then(Value::as_object).into_iter().flatten();
            for (name, value) in entries {
                let text = match value {
                    Value::String(text) => text.clone(),
                    Value::Number(number) => number.to_string(),
                    Value::Bool(truth) => truth.to_string(),
                    _ => continue,
                };
                settings.set(name, &text);
            }
        }
        settings
    }

    /// Sets a value in the place of any there was.
    pub fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Whether it is there, and neither false nor zero.
    pub(super) fn is_true(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|value| !matches!(value, "" | "0" | "false"))
    }
}
