//! `cairn demo`: a training run that is killed and goes on elsewhere, then the state of a larger model saved and loaded.

mod corpus;
mod plot;
mod state;
mod svg;
mod training;

use crate::args::Demo;
use crate::error::{Error, Exit};
use crate::printer::Printer;
use cairn::store::{Local, Store};
use serde_json::json;

pub(crate) fn run(args: &Demo, printer: &Printer) -> Result<Exit, Error> {
    let above = args.dir.as_deref().unwrap_or("cairn-demo");
    let folder = format!("{above}/demo-{}", std::process::id());
    let played = play(args, &folder, printer);
    if args.keep {
        printer.note(&format!(
            "everything is in `{folder}`: try `cairn ls {folder}/killed` or open {folder}/loss.svg"
        ));
    } else {
        clean_up(&folder)?;
    }
    played
}

fn play(args: &Demo, folder: &str, printer: &Printer) -> Result<Exit, Error> {
    let training = training::play(folder, args.steps, printer)?;
    if !printer.is_json() {
        printer.text(&training.text(printer))?;
    }
    let bytes = args.gb * (1_u64 << 30) as f64;
    let state = match bytes > 0.0 {
        true => Some(state::play(&format!("{folder}/state"), bytes, printer)?),
        false => None,
    };
    let told = json!({
        "training": training.json(),
        "state": state.as_ref().map(state::Outcome::json),
    });
    printer.report(&told, || match &state {
        Some(state) => format!("\n{}", state.table(printer)),
        None => String::new(),
    })?;
    let holds = training.holds() && state.is_none_or(|state| state.holds());
    Ok(match holds {
        true => Exit::Done,
        false => Exit::Differs,
    })
}

/// Deletes the files and the folders that are empty without them. A store keeps its own folder, so this one is rooted above.
fn clean_up(folder: &str) -> Result<(), Error> {
    let path = std::path::absolute(folder).unwrap_or_else(|_| folder.into());
    let above = path.ancestors().nth(2).unwrap_or(&path);
    let store = Local::new(above);
    let inside = path.strip_prefix(above).unwrap_or(&path);
    for object in store.list(&inside.to_string_lossy())? {
        store.delete(&object.key)?;
    }
    Ok(())
}
