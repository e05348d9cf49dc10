//! The profiles that people keep for the tools of Amazon: `~/.aws/config` and `~/.aws/credentials`.

use std::path::{Path, PathBuf};

const KEYS: [&str; 3] = [
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
];
const PLACES: [&str; 3] = ["region", "endpoint_url", "request_payer"];
/// Ways to credentials that other tools walk.
const WAYS: [&str; 4] = [
    "sso_session",
    "sso_start_url",
    "credential_process",
    "source_profile",
];

/// What a profile sets, by the names the client knows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Profile {
    pub(super) keys: Vec<(String, String)>,
    pub(super) places: Vec<(String, String)>,
    /// Why its credentials are not among the keys.
    pub(super) unsupported: Option<&'static str>,
}

impl Profile {
    /// The profile `name`, or the one that `AWS_PROFILE` names, or `default`.
    pub(super) fn find(name: Option<&str>) -> Self {
        let named = || std::env::var("AWS_PROFILE").ok();
        let name = name.map(str::to_owned).or_else(named);
        let name = name.unwrap_or_else(|| "default".to_owned());
        let files = [
            ("AWS_CONFIG_FILE", "config"),
            ("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        ];
        let texts = files.map(|(variable, file)| {
            let path = std::env::var_os(variable).map(PathBuf::from);
            let path = path.or_else(|| Some(std::env::home_dir()?.join(".aws").join(file)));
            path.and_then(|path| read(&path)).unwrap_or_default()
        });
        let mut profile = Self::default();
        texts.iter().for_each(|text| profile.add(text, &name));
        profile
    }

    /// Adds what a section sets; in `config` sections of profiles but the default are called `profile NAME`.
    fn add(&mut self, text: &str, name: &str) {
        let mut is_inside = false;
        for line in text.lines().map(str::trim) {
            let title = line
                .strip_prefix('[')
                .and_then(|line| line.strip_suffix(']'));
            if let Some(title) = title.map(str::trim) {
                is_inside = title.strip_prefix("profile ").unwrap_or(title).trim() == name;
            } else if let (true, Some((key, value))) = (is_inside, line.split_once('=')) {
                self.set(key.trim(), value.trim());
            }
        }
    }

    fn set(&mut self, key: &str, value: &str) {
        let setting = (key.to_owned(), value.to_owned());
        match key {
            _ if KEYS.contains(&key) => self.keys.push(setting),
            _ if PLACES.contains(&key) => self.places.push(setting),
            _ if WAYS.contains(&key) => {
                self.unsupported = Some("the profile gets them in a way that is not supported");
            }
            _ => {}
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "settings of the user, not objects of a store"
)]
fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(text: &str, name: &str) -> Profile {
        let mut profile = Profile::default();
        profile.add(text, name);
        profile
    }

    #[test]
    fn a_profile_is_found_under_both_of_its_titles() {
        let text = "[default]\nregion = here\n[profile mine]\n# a comment\nregion=there\nother = 1\n [mine]\naws_access_key_id = AK\n";
        let set = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        let mine = section(text, "mine");
        assert_eq!(mine.places, set("region", "there"));
        assert_eq!(mine.keys, set("aws_access_key_id", "AK"));
        assert_eq!(section(text, "default").places, set("region", "here"));
        assert_eq!(section(text, "nobody"), Profile::default());
    }

    #[test]
    fn a_profile_that_signs_in_elsewhere_says_so() {
        let text = "[default]\nsso_session = work\n";
        assert!(section(text, "default").unsupported.is_some());
    }
}
