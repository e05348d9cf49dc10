//! `cairn recipe`: what a recipe does, before it does it.

mod shipped;

use crate::args::{Recipe, RecipeExplain};
use crate::error::{Error, Exit};
use crate::open::open;
use crate::printer::Printer;
use crate::table::{Paint, Style, Table, cell};
use cairn::checkpoint::{Source, split_path};
use cairn::recipe::{
    Compiled, Error as RecipeError, Piece, Program, Target, Tensor, Tensors, json,
};
use cairn::sharding::Region;
use cairn::store;
use std::collections::BTreeSet;

/// The most targets that are shown as text.
const MAX_TARGETS: usize = 1000;
/// The most pieces of a target that are shown as text.
const MAX_PIECES: usize = 8;

pub(crate) fn run(args: &Recipe, printer: &Printer) -> Result<Exit, Error> {
    match args {
        Recipe::Explain(args) => explain(args, printer),
        Recipe::List => shipped::list(printer),
        Recipe::Show(args) => shipped::show(&args.name, printer),
    }
}

fn explain(args: &RecipeExplain, printer: &Printer) -> Result<Exit, Error> {
    let text = read(&args.program)?;
    let sources = tensors(args.sources.as_deref(), printer)?;
    let targets = tensors(args.targets.as_deref(), printer)?;
    match compile(&text, sources, targets, args.reverse) {
        Ok(compiled) => {
            if !printer.is_json() {
                compiled.warnings.iter().for_each(|text| printer.warn(text));
            }
            let paint = printer.paint();
            printer.report(&json::compiled(&compiled), || text_of(&compiled, paint))?;
            Ok(Exit::Done)
        }
        Err(error) if printer.is_json() => {
            printer.report(&json::error(&error), String::new)?;
            Ok(Exit::Differs)
        }
        Err(error) => Err(error.into()),
    }
}

fn read(path: &str) -> Result<String, Error> {
    let (folder, name) = split_path(path);
    let bytes = store::open(&folder)?.get(&name)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Compiles a recipe, a text or JSON. Tensors of models on disk go before those in the JSON.
fn compile(
    text: &str,
    sources: Option<Tensors>,
    targets: Option<Tensors>,
    reverse: bool,
) -> Result<Compiled, RecipeError> {
    let (mut program, described) = match text.trim_start().starts_with('{') {
        true => {
            let request = json::Request::parse(text)?;
            let program = request.program()?;
            (program, Some((request.sources()?, request.targets()?)))
        }
        false => (Program::parse(text)?, None),
    };
    if reverse {
        program = program.reversed();
    }
    let (its_sources, its_targets) = described.unwrap_or_default();
    let targets = targets.or(its_targets);
    program.compile(&sources.unwrap_or(its_sources), targets.as_ref())
}

/// The tensors of the checkpoint or model at a path.
fn tensors(path: Option<&str>, printer: &Printer) -> Result<Option<Tensors>, Error> {
    let Some(path) = path else { return Ok(None) };
    let opened = open(path, printer)?;
    let source = opened.source();
    let mut tensors = Tensors::new();
    for name in source.names() {
        if let Some(found) = source.find(name) {
            let tensor = Tensor {
                dtype: found.dtype,
                shards: shards(source, name, &found.shape)?,
                shape: found.shape,
            };
            tensors.insert(name.to_owned(), tensor);
        }
    }
    Ok(Some(tensors))
}

/// How many different places the stored pieces of a tensor begin at.
fn shards(source: &dyn Source, name: &str, shape: &[usize]) -> Result<usize, Error> {
    let pieces = source.pieces(name, &Region::whole(shape))?;
    let starts = pieces.iter().flat_map(|piece| piece.piece.boxes());
    let starts: BTreeSet<Vec<usize>> = starts.map(|found| found.region.offset).collect();
    Ok(starts.len().max(1))
}

fn text_of(compiled: &Compiled, paint: Paint) -> String {
    let mut table = Table::new(&["target", "shape", "from", "steps"]);
    for (name, target) in compiled.targets.iter().take(MAX_TARGETS) {
        rows(&mut table, name, target);
    }
    let mut text = table.render(paint);
    let more = compiled.targets.len().saturating_sub(MAX_TARGETS);
    if more > 0 {
        text.push_str(&format!("and {more} more; `--json` has them all\n"));
    }
    if !compiled.dropped.is_empty() {
        text.push_str(&format!("\ndropped: {}\n", compiled.dropped.join(", ")));
    }
    text
}

fn rows(table: &mut Table, name: &str, target: &Target) {
    let shape = format!("{}{:?}", target.dtype, target.shape);
    let Some(pieces) = &target.pieces else {
        let own = cell(Style::Dim, "the model's own value");
        return table.row(vec![name.into(), shape.into(), own]);
    };
    let mut first = Some((name, shape));
    for piece in pieces.iter().take(MAX_PIECES) {
        let (name, shape) = first.take().unwrap_or_default();
        let (from, steps) = (from(piece, target), steps(piece));
        table.row(vec![name.into(), shape.into(), from.into(), steps.into()]);
    }
    let more = pieces.len().saturating_sub(MAX_PIECES);
    if more > 0 {
        let more = cell(Style::Dim, format!("and {more} more pieces"));
        table.row(vec!["".into(), "".into(), more]);
    }
}

/// Which box of which source: `q_proj[0:64, 0:128]`; without the box where it is all that is needed.
fn from(piece: &Piece, target: &Target) -> String {
    let Some(source) = &piece.source else {
        return String::new();
    };
    let whole = piece.region == Region::whole(&target.shape);
    let starts = source.region.offset.iter().all(|start| *start == 0);
    if whole && starts {
        return source.name.clone();
    }
    let dims = source.region.offset.iter().zip(&source.region.extent);
    let dims = dims.map(|(start, len)| format!("{start}:{}", start + len));
    format!("{}[{}]", source.name, dims.collect::<Vec<_>>().join(", "))
}

fn steps(piece: &Piece) -> String {
    let steps = piece.steps.iter().map(ToString::to_string);
    steps.collect::<Vec<_>>().join(", ")
}
