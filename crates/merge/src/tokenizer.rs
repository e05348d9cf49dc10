//! The tokens of the result, and where the embedding of each comes from.
//!
//! A fast tokenizer is one JSON file. Its tokens are read from there, and a union is written as the base model's file with tokens
//! added; how text is cut into tokens stays the base model's.

mod file;

use crate::Error;
use crate::config::{Config, ModelReference, TokenSource, TokenizerSource};
use crate::input::Input;
use crate::models::Model;
use crate::number::{Real, Single};
use crate::vocabulary::{Row, Rows};
use file::{add_tokens, tokenizer, tokens_of, used};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The file that holds a fast tokenizer.
pub(crate) const TOKENIZER_FILE: &str = "tokenizer.json";

type Tokens = HashMap<String, usize>;

/// The vocabulary of the result.
pub(crate) struct Vocabulary {
    /// The tokens in order of their numbers.
    tokens: Vec<(usize, String)>,
    rows: usize,
    /// The number of each token in each model; a model without a tokenizer has the base model's.
    models: Vec<Tokens>,
    chosen: BTreeMap<String, (TokenSource, bool)>,
    numbers: HashMap<ModelReference, usize>,
    /// The model whose tokenizer files are taken.
    pub(crate) owner: usize,
    /// The owner's tokenizer with tokens added, if any were.
    pub(crate) file: Option<Vec<u8>>,
}

impl Vocabulary {
    /// The vocabulary that a config asks for, if it asks for one.
    pub(crate) fn new(config: &Config, models: &[Model]) -> Result<Option<Self>, Error> {
        let Some(wanted) = &config.tokenizer else {
            return Ok(None);
        };
        let numbers: HashMap<ModelReference, usize> = models
            .iter()
            .enumerate()
            .map(|(number, model)| (model.reference.clone(), number))
            .collect();
        let base = config.base_model.as_ref().map_or(0, |base| numbers[base]);
        let owner = match &wanted.source {
            TokenizerSource::Model(model) => numbers.get(model).copied().unwrap_or(base),
            _ => base,
        };
        let (mut file, _) = tokenizer(&models[owner])?
            .ok_or_else(|| models[owner].fault(TOKENIZER_FILE, "is missing".into()))?;
        let base_tokens = tokens_of(&file);
        let mut all = Vec::new();
        for model in models {
            let own = match tokenizer(model)? {
                Some((file, rows)) => used(tokens_of(&file), rows),
                None => base_tokens.clone(),
            };
            all.push(own);
        }
        let mut added = Vec::new();
        if wanted.source == TokenizerSource::Union {
            for tokens in &all {
                let mut missing: Vec<(&String, &usize)> = tokens
                    .iter()
                    .filter(|(token, _)| !base_tokens.contains_key(*token))
                    .collect();
                missing.sort_by_key(|(_, id)| **id);
                added.extend(missing.into_iter().map(|(token, _)| token.clone()));
            }
        }
        added.extend(wanted.tokens.iter().map(|(token, _, _)| token.clone()));
        let is_longer = add_tokens(&mut file, &base_tokens, added, models, &all)?;
        let mut tokens: Vec<(usize, String)> = tokens_of(&file)
            .into_iter()
            .map(|(token, id)| (id, token))
            .collect();
        tokens.sort();
        let count = tokens.len();
        let rows = wanted
            .pad_to_multiple_of
            .map_or(count, |multiple| count.next_multiple_of(multiple));
        // Numbers may have holes; a row is a number.
        let rows = tokens.last().map_or(rows, |(id, _)| rows.max(id + 1));
        Ok(Some(Self {
            tokens,
            rows,
            models: all,
            chosen: wanted
                .tokens
                .iter()
                .map(|(token, source, force)| (token.clone(), (source.clone(), *force)))
                .collect(),
            numbers,
            owner,
            file: is_longer.then(|| serde_json::to_vec_pretty(&file).expect("JSON")),
        }))
    }

    /// Rows of an embedding.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Puts the rows of every input, an embedding each, in the order of this vocabulary.
    pub(crate) fn arrange(
        &self,
        name: &str,
        models: &[Model],
        owners: &[usize],
        base: Option<usize>,
        inputs: &mut [Input],
    ) -> Result<(), Error> {
        let twin = |(owner, input): (&usize, &Input)| {
            let donor = models[*owner].input(&input.name);
            donor.map(Arc::new)
        };
        let donors: Vec<Arc<Input>> = owners
            .iter()
            .zip(inputs.iter())
            .map(twin)
            .collect::<Result<_, _>>()?;
        let width: usize = inputs
            .first()
            .map_or(1, |input| input.stored.shape[1..].iter().product());
        let heights: Vec<usize> = inputs.iter().map(|input| input.stored.shape[0]).collect();
        let place = |source: usize, token: &str| {
            let id = self.models[owners[source]].get(token).copied();
            id.filter(|id| *id < heights[source])
        };
        let mut given = vec![vec![0.0; width]];
        let mut rows = vec![vec![Row::Given(0); self.rows]; inputs.len()];
        for (id, token) in &self.tokens {
            let places: Vec<Option<usize>> = (0..inputs.len())
                .map(|source| place(source, token))
                .collect();
            let chosen = self.chosen.get(token);
            let force = chosen.is_some_and(|(_, force)| *force);
            // Where every model has a token and nobody wants another embedding, none is worked out.
            let is_needed = force || places.contains(&None);
            let default = match chosen.map(|(source, _)| source) {
                _ if !is_needed => Row::Given(0),
                None | Some(TokenSource::Rule) => {
                    by_rule(&places, base, &donors, width, &mut given)?
                }
                Some(source) => self.chosen_row(name, token, source, owners, &places, &heights)?,
            };
            for (source, place) in places.iter().enumerate() {
                rows[source][*id] = match place {
                    Some(row) if !force => Row::Own(*row),
                    _ => default,
                };
            }
        }
        for (input, rows) in inputs.iter_mut().zip(rows) {
            let mut rows = Rows {
                width,
                rows,
                donors: donors.clone(),
                given: given.clone(),
            };
            self.pad(input, &mut rows)?;
            input.rows = Some(Arc::new(rows));
        }
        Ok(())
    }

    /// The embedding that a config chose for a token.
    fn chosen_row(
        &self,
        name: &str,
        token: &str,
        source: &TokenSource,
        owners: &[usize],
        places: &[Option<usize>],
        heights: &[usize],
    ) -> Result<Row, Error> {
        let fail = |reason: String| Error::Tensor {
            name: name.to_string(),
            reason,
        };
        let of = |model: &ModelReference| {
            let number = self.numbers.get(model);
            let donor = number.and_then(|number| owners.iter().position(|owner| owner == number));
            donor.ok_or_else(|| {
                fail(format!(
                    "token `{token}` comes from `{model}`, which is not merged"
                ))
            })
        };
        let (donor, row) = match source {
            TokenSource::Rule | TokenSource::Zero => return Ok(Row::Given(0)),
            TokenSource::Model(model) => {
                let donor = of(model)?;
                (donor, places[donor])
            }
            TokenSource::Token(model, other) => {
                let donor = of(model)?;
                (donor, self.models[owners[donor]].get(other).copied())
            }
            TokenSource::TokenId(model, id) => (of(model)?, Some(*id)),
        };
        let row = row.filter(|row| *row < heights[donor]);
        let row =
            row.ok_or_else(|| fail(format!("the embedding for token `{token}` is not there")))?;
        Ok(Row::Donor { donor, row })
    }

    /// Fills rows that belong to no token with the mean of the others.
    fn pad(&self, input: &Input, rows: &mut Rows) -> Result<(), Error> {
        let count = self.tokens.len();
        if count == 0 || rows.rows.len() == count {
            return Ok(());
        }
        let mut is_free = vec![true; rows.rows.len()];
        let mut mean = vec![0.0_f64; rows.width];
        let mut values = vec![0.0_f32; rows.width];
        let mut bytes = Vec::new();
        for (id, _) in &self.tokens {
            is_free[*id] = false;
            let range = id * rows.width..(id + 1) * rows.width;
            rows.read::<Single>(input, range, &mut bytes, &mut values)?;
            let sums = mean.iter_mut().zip(&values);
            sums.for_each(|(mean, value)| *mean += f64::from(*value));
        }
        let mean = mean.iter().map(|sum| f32::of(sum / count as f64));
        rows.given.push(mean.collect());
        let last = Row::Given(rows.given.len() - 1);
        for (row, _) in rows
            .rows
            .iter_mut()
            .zip(is_free)
            .filter(|(_, is_free)| *is_free)
        {
            *row = last;
        }
        Ok(())
    }
}

/// The embedding of a token in models that lack it: the base model's, that of the only model with it, the mean of the others.
fn by_rule(
    places: &[Option<usize>],
    base: Option<usize>,
    donors: &[Arc<Input>],
    width: usize,
    given: &mut Vec<Vec<f32>>,
) -> Result<Row, Error> {
    let present: Vec<(usize, usize)> = places
        .iter()
        .enumerate()
        .filter_map(|(source, row)| row.map(|row| (source, row)))
        .collect();
    let from_base = present.iter().find(|(source, _)| Some(*source) == base);
    match (present.as_slice(), from_base) {
        ([], _) => Ok(Row::Given(0)),
        ([(donor, row)], _) | (_, Some((donor, row))) => Ok(Row::Donor {
            donor: *donor,
            row: *row,
        }),
        (some, None) => {
            let mut mean = vec![0.0; width];
            let mut values = vec![0.0; width];
            for (donor, row) in some {
                let range = row * width..(row + 1) * width;
                donors[*donor].read_own::<Single>(range, &mut Vec::new(), &mut values)?;
                mean.iter_mut()
                    .zip(&values)
                    .for_each(|(mean, value): (&mut f32, &f32)| *mean += value);
            }
            mean.iter_mut().for_each(|mean| *mean /= some.len() as f32);
            given.push(mean);
            Ok(Row::Given(given.len() - 1))
        }
    }
}
