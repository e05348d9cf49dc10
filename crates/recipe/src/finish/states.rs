//! Optimizer state: made by the same statements as its parameter, without changing its values.

use super::{Finisher, Found, own, target};
use crate::compiled::Target;
use crate::engine::Running;
use crate::error::{Error, Problem};
use crate::operation::{Item, Kind};
use crate::state::Style;
use crate::tensors::{Tensor, Tensors};
use crate::value::Value;
use cairn_tensor::DType;
use std::collections::BTreeMap;
use std::rc::Rc;

impl Finisher<'_> {
    /// The state of every target whose sources have it.
    pub(super) fn leftover_states(&mut self) -> Result<(), Error> {
        for style in self.finish.grouped.states.keys() {
            if style.scalar {
                self.leftover_scalars(style);
                continue;
            }
            let inputs = self.state_inputs(style)?;
            let running = self.stage.run(&inputs, Kind::State)?;
            for (parameter, item) in running.leftover() {
                let name = style.of(&parameter);
                match item {
                    Item::Absent => {}
                    Item::Part => {
                        let warning =
                            format!("`{name}` is left out: not all of its sources have it");
                        self.compiled.warnings.push(warning);
                    }
                    Item::Value(value) => {
                        self.check_dropped(&running, &parameter, &value, Some(style))?;
                        self.compiled.targets.insert(name, target(&value));
                    }
                }
            }
        }
        Ok(())
    }

    fn leftover_scalars(&mut self, style: &Style) {
        for (parameter, item) in self.running.leftover() {
            if let Some((source, tensor)) = self.scalar(style, &item) {
                let value = Value::source(&source, tensor.dtype, &tensor.shape);
                self.compiled
                    .targets
                    .insert(style.of(&parameter), target(&value));
            }
        }
    }

    /// The number that belongs to the first source of a tensor.
    fn scalar(&self, style: &Style, item: &Item) -> Option<(String, &Tensor)> {
        let Item::Value(value) = item else {
            return None;
        };
        let parameter = super::sources_of(value).next()?;
        let tensor = self.finish.grouped.states.get(style)?.get(parameter)?;
        Some((style.of(parameter), tensor))
    }

    /// The state that the last stage begins with.
    fn state_inputs(&self, style: &Style) -> Result<BTreeMap<String, Item>, Error> {
        let grouped = self.finish.grouped;
        let state = grouped.states.get(style);
        let item = |(name, tensor): (&String, &Tensor)| {
            let found = state.and_then(|state| state.get(name));
            // Where only parameters are described, each is taken to have all state.
            let assumed = grouped.states.is_empty().then_some(tensor);
            let item = found.or(assumed).map_or(Item::Absent, |found| {
                let dtype = if grouped.states.is_empty() {
                    DType::F32
                } else {
                    found.dtype
                };
                Item::Value(Rc::new(Value::source(&style.of(name), dtype, &found.shape)))
            });
            (name.clone(), item)
        };
        let mut inputs: BTreeMap<String, Item> = grouped.parameters.iter().map(item).collect();
        let before = self.finish.stages.len() - 1;
        for stage in &self.finish.stages[..before] {
            inputs = stage.run(&inputs, Kind::State)?.leftover();
        }
        Ok(inputs)
    }

    /// The state that is asked for, of one kind.
    pub(super) fn declared_states(
        &mut self,
        style: Style,
        wanted: &[(&str, String)],
        targets: &Tensors,
    ) -> Result<(), Error> {
        let inputs = match style.scalar {
            true => BTreeMap::new(),
            false => self.state_inputs(&style)?,
        };
        let running = match style.scalar {
            true => None,
            false => Some(self.stage.run(&inputs, Kind::State)?),
        };
        for (name, parameter) in wanted {
            let declared = &targets[*name];
            let made = match &running {
                Some(running) => self.state(&style, running, name, parameter, declared)?,
                None => self.declared_scalar(&style, name, parameter, declared)?,
            };
            self.compiled.targets.insert(name.to_string(), made);
        }
        Ok(())
    }

    fn state(
        &self,
        style: &Style,
        running: &Running<'_>,
        name: &str,
        parameter: &str,
        declared: &Tensor,
    ) -> Result<Target, Error> {
        let value = match self.find(running, parameter)? {
            Found::Own => return Ok(own(declared)),
            Found::Item(Item::Value(value)) => value,
            Found::Item(Item::Absent) => return Err(self.no_source(name).into()),
            Found::Item(Item::Part) => {
                let (target, state) = (parameter.to_owned(), name.to_owned());
                return Err(self.at(running, parameter, Problem::PartOfState { target, state }));
            }
        };
        let assumed = self.finish.grouped.states.is_empty();
        self.check(running, parameter, value, declared, !assumed)?;
        self.check_dropped(running, parameter, value, Some(style))?;
        let mut made = target(value);
        made.dtype = declared.dtype;
        Ok(made)
    }

    fn declared_scalar(
        &self,
        style: &Style,
        name: &str,
        parameter: &str,
        declared: &Tensor,
    ) -> Result<Target, Error> {
        let item = match self.find(self.running, parameter)? {
            Found::Own => return Ok(own(declared)),
            Found::Item(item) => item,
        };
        if let Some((source, tensor)) = self.scalar(style, item) {
            let value = Value::source(&source, tensor.dtype, &tensor.shape);
            self.check(self.running, name, &value, declared, true)?;
            return Ok(target(&value));
        }
        let assumed = match item {
            Item::Value(value) if self.finish.grouped.states.is_empty() => {
                super::sources_of(value).next()
            }
            _ => None,
        };
        let source = assumed.ok_or_else(|| self.no_source(name))?;
        let value = Value::source(&style.of(source), declared.dtype, &declared.shape);
        Ok(target(&value))
    }
}
