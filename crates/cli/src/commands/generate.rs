//! `cairn generate`: goes on with a text, as a model would.

mod sampling;

use crate::args::Generate;
use crate::error::{Error, Exit};
use crate::open::open;
use crate::printer::Printer;
use cairn::data::{Bytes, HuggingFace, Tokenizer, tokenizer};
use cairn::kernels::Pool;
use cairn::model::{Generator, ModelConfig, Options, blocks};
use cairn::train::weights;
use sampling::Sampling;
use serde::Serialize;
use std::collections::BTreeMap;
use std::thread::available_parallelism;
use std::time::Instant;

/// What was generated.
#[derive(Debug, Default, Serialize)]
struct Report {
    path: String,
    prompt: Vec<u32>,
    tokens: Vec<u32>,
    text: Option<String>,
    /// Whether the model ended the text itself.
    ended: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logits: Vec<Vec<f32>>,
}

pub(crate) fn run(args: &Generate, printer: &Printer) -> Result<Exit, Error> {
    let source = open(&args.path, printer)?.into_source();
    let files: BTreeMap<String, Vec<u8>> = source.assets()?.into_iter().collect();
    let config = model_config(&files, &args.path)?;
    let words = words(args, &files, &config)?;
    let prompt = match (&args.prompt, &words) {
        (Some(text), Some(words)) => words.encode(text)?,
        _ => args.tokens.clone(),
    };
    let mut writer = Writer {
        args,
        printer,
        words: words.as_deref(),
        shown: String::new(),
        report: Report {
            path: args.path.clone(),
            prompt,
            ..Report::default()
        },
    };
    let blocks = blocks::<f32>(&config, &Options::default());
    let slices = weights::whole(&source, &blocks)?;
    let slices: Vec<&[f32]> = slices.iter().map(Vec::as_slice).collect();
    let begun = Instant::now();
    writer.write(&mut Generator::new(&config), &slices)?;
    let rate = writer.report.tokens.len() as f64 / begun.elapsed().as_secs_f64();
    match printer.is_json() {
        true => printer.report(&writer.report, String::new)?,
        false => printer.data("\n")?,
    }
    printer.note(&format!("{rate:.1} tokens/s"));
    Ok(Exit::Done)
}

/// What the model is like, as the file beside its weights says.
fn model_config(files: &BTreeMap<String, Vec<u8>>, path: &str) -> Result<ModelConfig, Error> {
    let bytes = files.get("config.json");
    let bytes = bytes.ok_or_else(|| Error::NoModelConfig { path: path.into() })?;
    Ok(ModelConfig::from_json(&String::from_utf8_lossy(bytes))?)
}

/// What text becomes tokens by: the tokenizer that is named, that of the model, or bytes; none is needed for tokens alone.
fn words(
    args: &Generate,
    files: &BTreeMap<String, Vec<u8>>,
    config: &ModelConfig,
) -> Result<Option<Box<dyn Tokenizer>>, Error> {
    if let Some(name) = &args.tokenizer {
        return Ok(Some(tokenizer(name)?));
    }
    if let Some(json) = files.get("tokenizer.json") {
        let beside = files.get("tokenizer_config.json").map(Vec::as_slice);
        let own = HuggingFace::from_bytes(&args.path, json, beside)?;
        return Ok(Some(Box::new(own)));
    }
    let bytes = config.vocab_size > 256 || args.prompt.is_some();
    Ok(bytes.then(|| Box::new(Bytes) as Box<dyn Tokenizer>))
}

/// Puts token after token.
struct Writer<'a> {
    args: &'a Generate,
    printer: &'a Printer,
    words: Option<&'a dyn Tokenizer>,
    /// The text that was printed.
    shown: String,
    report: Report,
}

impl Writer<'_> {
    fn write(&mut self, model: &mut Generator<f32>, weights: &[&[f32]]) -> Result<(), Error> {
        let pool = Pool::new(available_parallelism().map_or(1, usize::from));
        let sampling = Sampling {
            temperature: self.args.temperature,
            top_p: self.args.top_p,
            seed: self.args.seed,
        };
        if self.report.prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        self.show()?;
        let mut logits = model.read(&pool, weights, &self.report.prompt)?;
        for place in 0..self.args.max_tokens {
            let token = sampling.choose(&logits, place as u64);
            let token = token.and_then(|token| u32::try_from(token).ok());
            let token = token.ok_or(Error::NoToken { place })?;
            if self.args.logits {
                self.report.logits.push(logits);
            }
            self.report.tokens.push(token);
            self.report.ended = self.words.and_then(Tokenizer::eos) == Some(token);
            if self.report.ended {
                break;
            }
            self.show()?;
            logits = match place + 1 < self.args.max_tokens {
                true => model.read(&pool, weights, &[token])?,
                false => Vec::new(),
            };
        }
        Ok(())
    }

    /// Prints what is new of the text. Half a character waits for its other half.
    fn show(&mut self) -> Result<(), Error> {
        let Some(words) = self.words else {
            return Ok(());
        };
        let tokens = [self.report.prompt.as_slice(), &self.report.tokens].concat();
        let text = words.decode(&tokens)?;
        let whole = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        if let (false, Some(new)) = (self.printer.is_json(), whole.strip_prefix(&self.shown)) {
            self.printer.data(new)?;
            self.shown = whole.to_string();
        }
        self.report.text = Some(text);
        Ok(())
    }
}
