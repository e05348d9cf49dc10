//! `cairn recipe`: what a recipe does, before it does it.

mod shipped;

use super::transform::read;
use crate::args::{Recipe, RecipeExplain};
use crate::error::{Error, Exit};
use crate::open::{Opened, open};
use crate::printer::Printer;
use crate::table::{Paint, Style, Table, cell};
use crate::visible;
use cairn::checkpoint::{recipe_settings, recipe_tensors};
use cairn::recipe::library::{Settings, depends_on_shards};
use cairn::recipe::{Compiled, Piece, Target, json};
use cairn::sharding::Region;

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
    match compile(args, printer) {
        Ok(compiled) => {
            if !printer.is_json() {
                compiled.warnings.iter().for_each(|text| printer.warn(text));
            }
            let paint = printer.paint();
            printer.report(&json::compiled(&compiled), || text_of(&compiled, paint))?;
            Ok(Exit::Done)
        }
        Err(Error::Recipe(error)) if printer.is_json() => {
            printer.report(&json::error(&error), String::new)?;
            Ok(Exit::Differs)
        }
        Err(error) => Err(error),
    }
}

/// Compiles a recipe. Tensors of models on disk go before those that its JSON describes.
fn compile(args: &RecipeExplain, printer: &Printer) -> Result<Compiled, Error> {
    let opened = |path: &Option<String>| path.as_ref().map(|path| open(path, printer)).transpose();
    let (sources, targets) = (opened(&args.sources)?, opened(&args.targets)?);
    let mut settings = match &sources {
        Some(opened) => recipe_settings(opened.source())?,
        None => Settings::default(),
    };
    for (name, value) in &args.set {
        settings.set(name, value);
    }
    let (text, program) = read(&args.program, args.reverse, &settings)?;
    let described = match text.trim_start().starts_with('{') {
        true => {
            let request = json::Request::parse(&text)?;
            (request.sources()?, request.targets()?)
        }
        false => Default::default(),
    };
    let shards = depends_on_shards(&text);
    let tensors = |opened: Option<Opened>| {
        let tensors = opened.map(|opened| recipe_tensors(opened.source(), shards));
        tensors.transpose()
    };
    let targets = tensors(targets)?.or(described.1);
    Ok(program.compile(&tensors(sources)?.unwrap_or(described.0), targets.as_ref())?)
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
        let dropped = compiled.dropped.join(", ");
        text.push_str(&format!("\ndropped: {}\n", visible::line(&dropped)));
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
