//! Recipes that ship with Cairn, and the templates they are written as.
//!
//! A shipped recipe stands between two layouts of a model and runs in both directions: `llama/hf-to-megatron` and
//! `llama/megatron-to-hf` are one text. What differs between models of a family, such as the number of heads, is taken from
//! [`Settings`]: the model's `config.json`, and what the caller sets.
//!
//! ```
//! use cairn_recipe::library::{self, Settings};
//!
//! let mut settings = Settings::default();
//! settings.set("num_attention_heads", "32");
//! let program = library::find("llama/hf-to-paddle")?.program(&settings)?;
//! assert!(!program.is_empty());
//! # Ok::<(), library::LibraryError>(())
//! ```

mod error;
mod settings;
mod shipped;
mod template;
#[cfg(test)]
mod tests;

use crate::json::Request;
use crate::{Error, Problem, Program};
use shipped::FILES;

pub use error::LibraryError;
pub use settings::Settings;

/// Texts that are only parts of recipes.
const PARTS: &str = "parts/";

/// A recipe that ships with Cairn, in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shipped {
    /// The name: `llama/hf-to-megatron`.
    pub name: String,
    /// What it is for, in a sentence.
    pub about: &'static str,
    text: &'static str,
    reverse: bool,
}

impl Shipped {
    /// The template it is written as, with everything it includes, from left to right.
    ///
    /// # Errors
    /// If it includes what does not exist.
    pub fn text(&self) -> Result<String, LibraryError> {
        template::included(self.text)
    }

    /// Whether it runs its template from right to left.
    pub fn is_reverse(&self) -> bool {
        self.reverse
    }

    /// The recipe that undoes it.
    #[must_use]
    pub fn opposite(&self) -> Self {
        let (family, layouts) = self.name.split_once('/').unwrap_or(("", &self.name));
        let (from, to) = layouts.split_once("-to-").unwrap_or((layouts, ""));
        Self {
            name: format!("{family}/{to}-to-{from}"),
            reverse: !self.reverse,
            ..self.clone()
        }
    }

    /// The settings it asks for, in order.
    pub fn settings(&self) -> Vec<String> {
        self.text()
            .map_or(Vec::new(), |text| template::asked(&text))
    }

    /// The program for a model with these settings.
    ///
    /// # Errors
    /// If a setting is missing, or is none that can stand where it is used.
    pub fn program(&self, settings: &Settings) -> Result<Program, LibraryError> {
        program(self.text, self.reverse, settings)
    }
}

/// Every recipe that ships with Cairn, in order of names.
pub fn list() -> Vec<Shipped> {
    let whole = FILES.iter().filter(|(name, _)| !name.starts_with(PARTS));
    let mut found: Vec<Shipped> = whole.flat_map(|(name, text)| both(name, text)).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// The recipe called `name`.
///
/// # Errors
/// [`LibraryError::NoSuchRecipe`].
pub fn find(name: &str) -> Result<Shipped, LibraryError> {
    let mut all = list();
    match all.iter().position(|recipe| recipe.name == name) {
        Some(index) => Ok(all.swap_remove(index)),
        None => {
            let near = crate::tensors::nearest(name, all.iter().map(|recipe| recipe.name.as_str()));
            let name = name.to_owned();
            Err(LibraryError::NoSuchRecipe { name, near })
        }
    }
}

/// The program that a recipe of one's own comes to, or the one that undoes it.
///
/// It is a template, or JSON: a list of statements, or an object with `statements` and `reverse` (`aoa_statements` and
/// `aoa_config_reverse`), which are not filled in.
///
/// # Errors
/// If the template cannot be read, a setting is missing, or what it comes to is no program.
pub fn program(text: &str, reverse: bool, settings: &Settings) -> Result<Program, LibraryError> {
    if is_json(text) {
        let program = from_json(text)?;
        return Ok(if reverse { program.reversed() } else { program });
    }
    let rendered = template::render(text, reverse, settings)?;
    let program = Program::parse(&rendered.statements)?;
    Ok(match reverse {
        false => program,
        true => {
            let after = Program::parse(&rendered.after_reverse)?;
            program.reversed().then(after)
        }
    })
}

/// Whether the meaning of a recipe depends on how many shards tensors are held in.
pub fn depends_on_shards(text: &str) -> bool {
    ["fused_ffn", "fused_qkv_old"]
        .iter()
        .any(|word| text.contains(word))
}

fn is_json(text: &str) -> bool {
    let text = text.trim_start();
    // A template may begin with a list of names, `[[…]]`.
    text.starts_with(['{', '[']) && !text.starts_with("[[")
}

fn from_json(text: &str) -> Result<Program, LibraryError> {
    if text.trim_start().starts_with('{') {
        return Ok(Request::parse(text)?.program()?);
    }
    let statements: Vec<String> = serde_json::from_str(text).map_err(|error| {
        let reason = error.to_string();
        Error::from(Problem::Json { reason })
    })?;
    Ok(Program::from_statements(statements)?)
}

/// The two directions of a text.
fn both(name: &str, text: &'static str) -> [Shipped; 2] {
    let about = text.lines().next().unwrap_or_default();
    let about = about.trim_start_matches(['#', ' ']);
    let (family, layouts) = name.split_once('/').unwrap_or(("", name));
    let (left, right) = layouts.split_once('-').unwrap_or((layouts, ""));
    let forward = Shipped {
        name: format!("{family}/{left}-to-{right}"),
        about,
        text,
        reverse: false,
    };
    [forward.opposite(), forward]
}
