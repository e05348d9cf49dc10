//! `cairn tokenize`: text in, a file of tokens out.

use crate::args::Tokenize;
use crate::error::{Error, Exit};
use crate::printer::Printer;
use crate::table::{Paint, Table};
use crate::units::size;
use cairn::checkpoint::split_path;
use cairn::data::{self, Format, Keep, Texts, TokenWriter, Tokenized, Tokenizer, Width, tokenizer};
use cairn::store;
use serde::Serialize;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;
use std::time::Instant;

#[derive(Debug, Serialize)]
struct Report {
    inputs: Vec<String>,
    target: String,
    tokenizer: String,
    vocabulary: u32,
    eos: Option<u32>,
    documents: u64,
    empty_documents: u64,
    tokens: u64,
    token_bytes: u64,
    text_bytes: u64,
    len_bytes: u64,
}

pub(crate) fn run(args: &Tokenize, printer: &Printer) -> Result<Exit, Error> {
    let start = Instant::now();
    let tokenizer = tokenizer(&args.tokenizer)?;
    let append = append(args, tokenizer.as_ref())?;
    let inputs: Vec<Texts> = args
        .inputs
        .iter()
        .map(|path| open(args, path))
        .collect::<Result<_, _>>()?;
    let width = Width::for_vocabulary(tokenizer.vocabulary());
    let (folder, name) = split_path(&args.target);
    let target = store::open(&folder)?;
    let mut writer = TokenWriter::create(&target, &name, width, Some(tokenizer.vocabulary()))?;
    let tokenize = data::Tokenize {
        append,
        threads: args
            .threads
            .or(available_parallelism().ok())
            .unwrap_or(NonZeroUsize::MIN),
    };
    let total = inputs.iter().map(Texts::len_bytes).sum();
    let done = Arc::new(AtomicU64::new(0));
    let bar = printer.progress("tokenize", total, done.clone());
    let texts = inputs.into_iter().flatten();
    let tokenized = tokenize.run(tokenizer.as_ref(), texts, &mut writer, |bytes| {
        done.fetch_add(bytes, Ordering::Relaxed);
    })?;
    let len_bytes = writer.finish()?;
    drop(bar);
    let report = Report::new(args, tokenizer.as_ref(), append, &tokenized, len_bytes);
    printer.report(&report, || report.text(printer.paint()))?;
    let seconds = start.elapsed().as_secs_f64();
    printer.note(&format!("wrote {} in {seconds:.1} s", size(len_bytes)));
    Ok(Exit::Done)
}

fn open(args: &Tokenize, path: &str) -> Result<Texts, data::Error> {
    let keep = match (args.keep_all, args.keep.is_empty()) {
        (true, _) => Keep::Everything,
        (false, true) => Keep::Nothing,
        (false, false) => Keep::Named(args.keep.clone()),
    };
    Texts::open(path, Format::of(path, &args.field, &keep))
}

/// The token that every document ends with, if one was asked for.
fn append(args: &Tokenize, tokenizer: &dyn Tokenizer) -> Result<Option<u32>, Error> {
    let found = match &args.eos {
        Some(token) => tokenizer.find(token),
        None if args.append_eos => tokenizer.eos(),
        None => return Ok(None),
    };
    let missing = || Error::NoEos {
        tokenizer: tokenizer.name().into(),
        token: args.eos.clone(),
    };
    found.map(Some).ok_or_else(missing)
}

impl Report {
    fn new(
        args: &Tokenize,
        tokenizer: &dyn Tokenizer,
        eos: Option<u32>,
        tokenized: &Tokenized,
        len_bytes: u64,
    ) -> Self {
        Self {
            inputs: args.inputs.clone(),
            target: args.target.clone(),
            tokenizer: args.tokenizer.clone(),
            vocabulary: tokenizer.vocabulary(),
            eos,
            documents: tokenized.documents,
            empty_documents: tokenized.empty,
            tokens: tokenized.tokens,
            token_bytes: Width::for_vocabulary(tokenizer.vocabulary()).len_bytes(),
            text_bytes: tokenized.text_bytes,
            len_bytes,
        }
    }

    fn text(&self, paint: Paint) -> String {
        let mut facts = Table::facts();
        facts.fact(
            "wrote",
            format!("`{}`, {}", self.target, size(self.len_bytes)),
        );
        facts.fact(
            "tokens",
            format!("{} of {} bytes", self.tokens, self.token_bytes),
        );
        facts.fact("documents", self.documents.to_string());
        facts.fact("text", size(self.text_bytes));
        facts.fact("vocabulary", self.vocabulary.to_string());
        if let Some(eos) = self.eos {
            facts.fact("each ends", format!("with token {eos}"));
        }
        if self.empty_documents > 0 {
            facts.fact("left out", format!("{} without text", self.empty_documents));
        }
        facts.render(paint)
    }
}
