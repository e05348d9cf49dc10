//! From the text of a config to its values.

mod fields;

use fields::{slips, understood};

use super::node::{Node, Tree};
use super::problem::{Place, Problem, Problems, suggestion};
use super::reader::Reader;
use super::sections;
use super::{Config, Data, Durable, Evaluation, Log, Model, Source};
use crate::parallel;
use crate::settings::Settings;
use cairn_checkpoint::split_path;
use cairn_data::Cut;
use cairn_model::ModelConfig;
use std::cell::RefCell;
use std::path::Path;

/// Reads the config in a file. Each of `settings` is a `key=value` that takes the place of what the file says.
///
/// # Errors
/// Everything that is wrong with it: syntax, unknown keys, values that cannot be, files that are not there.
pub fn read(path: &str, settings: &[String]) -> Result<Config, Problems> {
    let is_folder = Path::new(path).is_dir();
    let text = match is_folder {
        true => Err("it is a folder; name the file in it".to_string()),
        false => text_of(path),
    };
    let text = text.map_err(|reason| Problems {
        file: path.to_string(),
        list: vec![Problem::whole(format!("it cannot be read: {reason}"))],
    })?;
    let base = Path::new(path).parent().unwrap_or(Path::new(""));
    parse(path, &text, base, settings)
}

/// Makes sense of the text of a config, which the messages call `file`. Paths in it are relative to `base`.
///
/// # Errors
/// As [`read`].
pub fn parse(file: &str, text: &str, base: &Path, settings: &[String]) -> Result<Config, Problems> {
    let refused = |list| Problems {
        file: file.to_string(),
        list,
    };
    let (mut document, broken) = Node::parse(text);
    if !broken.is_empty() {
        // What follows from a break in the syntax would only confuse.
        return Err(refused(broken));
    }
    let unset = settings.iter().filter_map(|text| document.set(text).err());
    let problems = RefCell::new(unset.collect());
    let config = Parser { base }.config(&document, &problems);
    let mut list = problems.into_inner();
    list.sort_by(|a, b| a.place.cmp(&b.place));
    match config {
        Some(config) if list.is_empty() => Ok(config),
        _ => Err(refused(list)),
    }
}

struct Parser<'a> {
    base: &'a Path,
}

impl Parser<'_> {
    /// The config; none without a model.
    fn config(&self, document: &Node, problems: &RefCell<Vec<Problem>>) -> Option<Config> {
        let root = Reader::new(document, problems);
        let (mut settings, length) = sections::settings(&root);
        let folder = self.folder(&root);
        settings.offload = self.offload(&root, &folder);
        let durable = self.durable(&root);
        let model = self.model(&root);
        let data = self.data(&root, length);
        settings.may_change = may_change(&root);
        let evaluation = self.evaluation(&root);
        let log = self.log(&root, &folder);
        check(&root, &settings, model.as_ref().map(|model| &model.config));
        root.finish();
        Some(Config {
            settings,
            model: model?,
            data,
            folder,
            durable,
            evaluation,
            log,
            take_over: false,
        })
    }

    fn model(&self, root: &Reader<'_>) -> Option<Model> {
        if !root.has("model") {
            root.missing("model");
        }
        let table = root.table("model");
        let weights = self.existing(&table, "weights", "");
        let written = table.node("config");
        let place_is_table = written.is_some_and(|node| matches!(node.tree, Tree::Table(_)));
        let text = match written {
            Some(node) if matches!(node.tree, Tree::Table(_)) => Some(node.to_json().to_string()),
            Some(_) => self.text(&table, "config", ""),
            None if weights.is_some() => self.text(&table, "weights", "config.json"),
            None => {
                if root.has("model") && !table.has("weights") {
                    table.missing("config");
                }
                None
            }
        };
        let tokenizer = self.existing(&table, "tokenizer", "");
        let z_loss = table.within("z_loss", 0.0.., "at least 0").unwrap_or(0.0);
        let place = match table.has("config") {
            true => table.place("config"),
            false => table.place("weights"),
        };
        table.finish();
        let config = text.and_then(|text| understood(root, &place, &text))?;
        slips(root, written.filter(|_| place_is_table), &place, &config);
        Some(Model {
            config,
            weights,
            tokenizer,
            z_loss,
        })
    }

    /// The text of the file whose path is under `key`, or of that file of the folder there.
    fn text(&self, table: &Reader<'_>, key: &'static str, inside: &str) -> Option<String> {
        let path = self.existing(table, key, inside)?;
        let path = match inside {
            "" => path,
            inside => format!("{path}/{inside}"),
        };
        let text = text_of(&path);
        let refuse = |reason: &String| {
            let what = format!("`{path}` cannot be read: {reason}");
            table.problem(Problem::at(&table.place(key), what));
        };
        text.inspect_err(refuse).ok()
    }

    fn data(&self, root: &Reader<'_>, length: usize) -> Data {
        let table = root.table("data");
        let sources = self.sources(&table, "sources");
        let cuts = [
            ("stream", Cut::Stream),
            ("masked", Cut::Masked),
            ("packed", Cut::Packed),
            ("documents", Cut::Documents),
        ];
        let cut = table.choice("cut", &cuts, Cut::Stream);
        // Told elsewhere.
        table.node("may_change");
        table.finish();
        Data {
            sources,
            length,
            cut,
        }
    }

    /// Sources are paths, or tables with a path and a weight.
    fn sources(&self, table: &Reader<'_>, key: &'static str) -> Vec<Source> {
        let Some(node) = table.node(key) else {
            table.missing(key);
            return Vec::new();
        };
        let nodes = match &node.tree {
            Tree::List(nodes) => nodes.as_slice(),
            _ => std::slice::from_ref(node),
        };
        if nodes.is_empty() {
            table.problem(Problem::at(&node.place, "there are no sources"));
        }
        nodes
            .iter()
            .filter_map(|node| self.source(table, node))
            .collect()
    }

    fn source(&self, table: &Reader<'_>, node: &Node) -> Option<Source> {
        let (path, weight) = match &node.tree {
            Tree::Text(path) => (path.clone(), 1.0),
            Tree::Table(_) => {
                let source = table.inner(node, "sources");
                let weight = source.optional("weight").unwrap_or(1.0);
                let path = source.required::<String>("path");
                source.finish();
                (path, weight)
            }
            _ => {
                let what = format!("a source is a path or a table, not {}", node.kind());
                table.problem(Problem::at(&node.place, what));
                return None;
            }
        };
        if weight <= 0.0 {
            let what = format!("the weight of `{path}` must be more than 0, not `{weight}`");
            table.problem(Problem::at(&node.place, what));
        }
        let path = self.resolve(&path);
        // Megatron's files may be named by what their names begin with.
        if !path.is_empty() && !exists(&path) && !exists(&format!("{path}.idx")) {
            table.problem(Problem::at(&node.place, format!("there is no `{path}`")));
        }
        Some(Source { path, weight })
    }

    /// The durable tier behind the folder of the run.
    fn durable(&self, root: &Reader<'_>) -> Option<Durable> {
        let table = root.table("checkpoints");
        let is_per_node = table.optional::<bool>("per_node");
        let Some(address) = table.optional::<String>("durable") else {
            if is_per_node.is_some() {
                let what = "`checkpoints.per_node` is about the fast tier of a run with `checkpoints.durable`";
                table.problem(Problem::at(&table.place("per_node"), what));
            }
            return None;
        };
        Some(Durable {
            address: self.resolve(&address),
            is_per_node: is_per_node.unwrap_or(false),
        })
    }

    /// The folder of the run; the rest of the table is among the settings.
    fn folder(&self, root: &Reader<'_>) -> String {
        let folder = root.table("checkpoints").required::<String>("folder");
        self.resolve(&folder)
    }

    /// The folder for what the optimizer remembers, if that is to be in files: that of the run if none is given.
    fn offload(&self, root: &Reader<'_>, run: &str) -> Option<String> {
        let table = root.table("optimizer");
        let folder = table.optional::<String>("offload_folder");
        let folder = folder.map_or_else(|| run.to_string(), |folder| self.resolve(&folder));
        let kinds = [("none", false), ("files", true)];
        if !table.choice("offload", &kinds, false) {
            return None;
        }
        let folder = folder.strip_prefix("file://").unwrap_or(&folder);
        if folder.contains("://") {
            let what = format!("state cannot be offloaded to `{folder}`");
            let hint = "give a folder of this machine as `optimizer.offload_folder`";
            table.problem(Problem::at(&table.place("offload"), what).hint(hint));
        }
        Some(folder.to_string())
    }

    fn evaluation(&self, root: &Reader<'_>) -> Option<Evaluation> {
        if !root.has("evaluation") {
            // Known, so that what is nearly it is told.
            root.node("evaluation");
            return None;
        }
        let table = root.table("evaluation");
        let evaluation = Evaluation {
            every: table.within("every", 1.., "at least 1").unwrap_or(100),
            sources: self.sources(&table, "sources"),
            batches: table.within("batches", 1.., "at least 1").unwrap_or(1),
        };
        table.finish();
        Some(evaluation)
    }

    fn log(&self, root: &Reader<'_>, run: &str) -> Log {
        let table = root.table("log");
        let folder = table.optional::<String>("folder");
        let log = Log {
            folder: folder.map_or_else(|| run.to_string(), |folder| self.resolve(&folder)),
            every: table.within("every", 1.., "at least 1").unwrap_or(1),
            tensorboard: table.optional("tensorboard").unwrap_or(true),
        };
        table.finish();
        log
    }

    /// The path under `key`, where something must be.
    fn existing(&self, table: &Reader<'_>, key: &'static str, inside: &str) -> Option<String> {
        let path = self.resolve(&table.optional::<String>(key)?);
        let whole = match inside {
            "" => path.clone(),
            inside => format!("{path}/{inside}"),
        };
        if exists(&whole) {
            return Some(path);
        }
        table.problem(Problem::at(
            &table.place(key),
            format!("there is no `{whole}`"),
        ));
        None
    }

    /// A path as seen from here.
    fn resolve(&self, path: &str) -> String {
        let home = std::env::var("HOME").ok();
        match path.is_empty() || path.contains("://") {
            true => path.to_string(),
            // As a shell would have it.
            false if path.starts_with("~/") && home.is_some() => {
                format!("{}{}", home.unwrap_or_default(), &path[1..])
            }
            false => self.base.join(path).to_string_lossy().into_owned(),
        }
    }
}

/// The tables whose keys may be let differ from what a run began with.
const MAY_CHANGE: [&str; 5] = ["seed", "batch", "data", "model", "optimizer"];

/// What may differ from what a run began with: a list of keys, or a text with commas.
fn may_change(root: &Reader<'_>) -> Vec<String> {
    let mut names = match root.node("may_change").map(|node| &node.tree) {
        Some(Tree::Text(text)) => text
            .split(',')
            .map(|name| name.trim().to_string())
            .filter(|name| !name.is_empty())
            .collect(),
        Some(_) => root
            .optional::<Vec<String>>("may_change")
            .unwrap_or_default(),
        None => Vec::new(),
    };
    for name in &names {
        let table = name.split('.').next().unwrap_or_default();
        if !MAY_CHANGE.contains(&table) {
            let what = format!("`{name}` is nothing that `may_change` knows");
            let problem = Problem::at(&root.place("may_change"), what);
            root.problem(problem.hint(suggestion(table, &MAY_CHANGE)));
        }
    }
    // The same for the data alone.
    if root.table("data").optional("may_change").unwrap_or(false) {
        names.push("data".into());
    }
    names
}

/// Says why a model cannot be trained on these ranks, as far as it is known.
fn check(root: &Reader<'_>, settings: &Settings, model: Option<&ModelConfig>) {
    let mut settings = settings.clone();
    let blocks = model.map(|model| model.num_hidden_layers + 2);
    if blocks.is_none() {
        settings.parallel.blocks = None;
    }
    let mesh = &settings.parallel.mesh;
    for problem in parallel::problems(&settings, mesh.size(), blocks.unwrap_or(usize::MAX)) {
        root.problem(Problem::whole(problem.what).hint(problem.hint));
    }
    let tp = parallel::axis_size(mesh, "tp");
    for problem in model
        .into_iter()
        .flat_map(|model| model.parallel_problems(tp))
    {
        root.problem(Problem {
            place: Place::Whole,
            what: problem.what,
            hint: problem.hint,
        });
    }
}

/// The text of a small file, or why there is none.
fn text_of(path: &str) -> Result<String, String> {
    let (folder, name) = split_path(path);
    let read = || cairn_store::open(&folder)?.get(&name);
    let bytes = read().map_err(|error: cairn_store::Error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_string())
}

/// Whether there is a file or a folder at `path`.
fn exists(path: &str) -> bool {
    Path::new(path.strip_prefix("file://").unwrap_or(path)).exists()
}
