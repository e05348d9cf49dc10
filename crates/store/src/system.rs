//! What the system says of itself, through files that are none.

/// The text under a path of `/proc`; `None` where the system does not tell.
pub fn system_text(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Where a link under `/proc` leads; `None` where the system does not tell.
pub fn system_link(path: &str) -> Option<String> {
    let link = std::fs::read_link(path).ok()?;
    Some(link.to_string_lossy().into_owned())
}
