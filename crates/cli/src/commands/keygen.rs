//! `cairn keygen`: a pair of keys.

use crate::args::Keygen;
use crate::error::{Error, Exit};
use crate::printer::Printer;
use cairn::checkpoint::signing::SecretKey;
use cairn::checkpoint::split_path;
use cairn::store::{Local, PutMode, Store};
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Report {
    secret_file: String,
    public_file: String,
    public_key: String,
}

pub(crate) fn run(args: &Keygen, printer: &Printer) -> Result<Exit, Error> {
    let (folder, name) = split_path(&args.file);
    let report = Report {
        secret_file: args.file.clone(),
        public_file: format!("{}.pub", args.file),
        public_key: String::new(),
    };
    let written = |path: &str| {
        let path = path.to_string();
        |source| Error::Write { path, source }
    };
    let key = SecretKey::generate()?;
    let folder = Local::new(folder);
    let secret = format!("{}\n", key.to_text());
    folder
        .put_private(&name, secret.as_bytes())
        .map_err(written(&report.secret_file))?;
    let public = key.public().to_string();
    folder
        .put(
            &format!("{name}.pub"),
            format!("{public}\n").as_bytes(),
            PutMode::Create,
        )
        .map_err(written(&report.public_file))?;
    let report = Report {
        public_key: public,
        ..report
    };
    printer.report(&report, || format!("{}\n", report.public_key))?;
    printer.note(&format!(
        "wrote {} and {}",
        report.secret_file, report.public_file
    ));
    Ok(Exit::Done)
}
