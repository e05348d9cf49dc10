//! Which keys are valid: paths that stay inside the store on every backend.

use crate::Error;

/// The longest key, in bytes of UTF-8; the limit of the large object stores.
pub const MAX_KEY_BYTES: usize = 1024;

/// The longest segment of a key, in bytes of UTF-8; the limit of the common file systems.
pub const MAX_SEGMENT_BYTES: usize = 255;

/// How names of unpublished files begin, so that no key may.
pub(crate) const TEMP_PREFIX: &str = ".tmp-";

/// Checks that `key` names an object.
pub(crate) fn check(key: &str) -> Result<(), Error> {
    match broken_rule(key) {
        None => Ok(()),
        Some(reason) => Err(Error::InvalidKey {
            key: key.to_owned(),
            reason,
        }),
    }
}

/// Checks that `prefix` names a folder: a valid key, or empty for the whole store.
pub(crate) fn check_prefix(prefix: &str) -> Result<(), Error> {
    if prefix.is_empty() {
        return Ok(());
    }
    check(prefix)
}

/// Whether `name` can be a segment of a key.
pub(crate) fn is_segment(name: &str) -> bool {
    broken_segment_rule(name).is_none()
}

fn broken_rule(key: &str) -> Option<&'static str> {
    if key.is_empty() {
        return Some("it is empty");
    }
    if key.len() > MAX_KEY_BYTES {
        return Some("it is longer than 1024 bytes");
    }
    if key.starts_with('/') {
        return Some("it begins with `/`");
    }
    key.split('/').find_map(broken_segment_rule)
}

fn broken_segment_rule(segment: &str) -> Option<&'static str> {
    Some(match segment {
        "" => "it has an empty segment",
        "." | ".." => "it has a segment `.` or `..`",
        _ if segment.len() > MAX_SEGMENT_BYTES => "it has a segment longer than 255 bytes",
        _ if segment.contains('\0') => "it contains a NUL",
        _ if segment.contains('\\') => "it contains a backslash",
        _ if segment.contains('/') => "it has a `/` inside a segment",
        _ if segment.starts_with(TEMP_PREFIX) => "names that begin with `.tmp-` are reserved",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_keys_are_valid() {
        let longest_segment = "x".repeat(MAX_SEGMENT_BYTES);
        for key in [
            "a",
            "a/b/c",
            "...",
            ".hidden",
            "a b/c\nd",
            "模型/ß∑🪨",
            "%2e%2e",
            &longest_segment,
        ] {
            check(key).unwrap();
        }
    }

    #[test]
    fn keys_that_could_leave_the_store_are_refused() {
        let long_segment = "x".repeat(MAX_SEGMENT_BYTES + 1);
        let long_key = "abc/".repeat(MAX_KEY_BYTES / 4) + "d";
        for key in [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "a/..",
            "../a",
            "a/./b",
            "a\0b",
            "a\\..\\b",
            "a/.tmp-1",
            ".tmp-1/a",
            &long_segment,
            &long_key,
        ] {
            assert!(
                matches!(check(key), Err(Error::InvalidKey { .. })),
                "{key:?}"
            );
        }
    }

    #[test]
    fn messages_state_the_limits() {
        let reason = |key: &str| broken_rule(key).unwrap();
        assert!(reason(&"x".repeat(MAX_KEY_BYTES + 1)).contains(&MAX_KEY_BYTES.to_string()));
        assert!(
            reason(&"x".repeat(MAX_SEGMENT_BYTES + 1)).contains(&MAX_SEGMENT_BYTES.to_string())
        );
    }

    proptest! {
        #[test]
        fn valid_keys_never_step_out_of_a_folder(key in "[a./\\\\]{0,12}") {
            if check(&key).is_ok() {
                let path = std::path::Path::new(&key);
                let normal = |part| matches!(part, std::path::Component::Normal(_));
                prop_assert!(path.components().all(normal));
                prop_assert_eq!(path.components().count(), key.split('/').count());
            }
        }
    }
}
