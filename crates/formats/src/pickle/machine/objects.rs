//! Names, objects and calls: checked against the policy, written down, never done.

use super::Machine;
use crate::Error;
use crate::pickle::Policy;
use crate::pickle::node::{Id, Object, Value};

impl Machine<'_> {
    /// `GLOBAL`, and `INST`, which also makes an object: only named here, to refuse it well.
    pub(super) fn text_global(&mut self, opcode: u8) -> Result<(), Error> {
        let (module, name) = (self.line()?, self.line()?);
        self.global(&module, &name)?;
        match opcode {
            b'c' => Ok(()),
            _ => Err(self.unsupported(opcode)),
        }
    }

    pub(super) fn stack_global(&mut self) -> Result<(), Error> {
        let (name, module) = (self.pop()?, self.pop()?);
        let text = |id: Id| match &self.values[id as usize] {
            Value::Str(text) => Some(text.to_string()),
            _ => None,
        };
        match (text(module), text(name)) {
            (Some(module), Some(name)) => self.global(&module, &name),
            _ => Err(self.fail("a name is not a string".into())),
        }
    }

    pub(super) fn global(&mut self, module: &str, name: &str) -> Result<(), Error> {
        let global = format!("{module}.{name}");
        match self.policy.may_mention(&global) {
            true => self.push(Value::Global(global.into())),
            false => Err(self.refuse("mentions", global)),
        }
    }

    pub(super) fn call(&mut self) -> Result<(), Error> {
        let (args, class) = (self.pop()?, self.pop()?);
        self.check_class(class, "calls", Policy::may_call)?;
        self.object(class, args)
    }

    pub(super) fn new_object(&mut self, with_keywords: bool) -> Result<(), Error> {
        if with_keywords {
            let keywords = self.pop()?;
            if self.values[keywords as usize] != Value::Dict(Vec::new()) {
                return Err(self.fail("it makes an object with named arguments".into()));
            }
        }
        let (args, class) = (self.pop()?, self.pop()?);
        self.check_class(class, "makes an object of", Policy::may_build)?;
        self.object(class, args)
    }

    pub(super) fn check_class(
        &self,
        class: Id,
        deed: &'static str,
        allowed: fn(&Policy, &str) -> bool,
    ) -> Result<(), Error> {
        match &self.values[class as usize] {
            Value::Global(name) if allowed(self.policy, name) => Ok(()),
            Value::Global(name) => Err(self.refuse(deed, name.to_string())),
            _ => Err(self.fail(format!("it {deed} what is not a name"))),
        }
    }

    pub(super) fn object(&mut self, class: Id, args: Id) -> Result<(), Error> {
        if !matches!(self.values[args as usize], Value::Tuple(_)) {
            return Err(self.fail("arguments are not a tuple".into()));
        }
        self.push(Value::Object(Box::new(Object {
            class,
            args,
            state: None,
            items: Vec::new(),
            pairs: Vec::new(),
        })))
    }

    pub(super) fn build(&mut self) -> Result<(), Error> {
        let state = self.pop()?;
        match self.top()? {
            Value::Object(object) => object.state = Some(state),
            _ => return Err(self.fail("it gives a state to what is no object".into())),
        }
        Ok(())
    }

    pub(super) fn persistent(&mut self) -> Result<(), Error> {
        let key = self.pop()?;
        self.push(Value::Persistent(key))
    }
}
