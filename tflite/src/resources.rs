//! Resource variables while a graph is imported: state that operators name by a handle.
//!
//! A variable becomes a [`State`](crate::State) of the model: an input with its value before the execution
//! and an output with the one after it.

use std::collections::{HashMap, HashSet};

use nnhal_hal::{Operand, OperandLifeTime, OperandType};

use crate::graph::{GraphBuilder, Id};

/// A resource variable.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) name: String,
    /// Its type and value before the first execution, if the file initialises it.
    initial: Option<(OperandType, Vec<u8>)>,
    /// The model's input that has its value before an execution, if that is read.
    pub(crate) input: Option<Id>,
    /// Its value at this point, if it was read or written.
    current: Option<Id>,
}

/// Those of a file.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    all: Vec<Resource>,
    by_name: HashMap<String, usize>,
    /// The graphs that CALL_ONCE has called.
    called: HashSet<usize>,
    /// Which of them a tensor is a handle of.
    handles: HashMap<usize, usize>,
}

impl Resources {
    /// Makes a tensor a handle of the variable with this name.
    pub(crate) fn bind(&mut self, tensor: usize, name: String) {
        let number = self.number(name);
        self.handles.insert(tensor, number);
    }

    /// Whether CALL_ONCE is to call this graph: the first time.
    pub(crate) fn is_first_call(&mut self, graph: usize) -> bool {
        self.called.insert(graph)
    }

    /// Gives the variable with this name its first value. What was there before is replaced.
    pub(crate) fn initialise(&mut self, name: String, ty: OperandType, value: Vec<u8>) {
        let number = self.number(name);
        self.all[number].initial = Some((ty, value));
    }

    fn number(&mut self, name: String) -> usize {
        if let Some(known) = self.by_name.get(&name) {
            return *known;
        }
        let number = self.all.len();
        self.by_name.insert(name.clone(), number);
        self.all.push(Resource {
            name,
            initial: None,
            input: None,
            current: None,
        });
        number
    }

    fn of_handle(&mut self, tensor: usize) -> Result<&mut Resource, String> {
        let number = self.handles.get(&tensor).copied();
        let found = number.and_then(|number| self.all.get_mut(number));
        found.ok_or_else(|| "is no handle of a variable that VAR_HANDLE gave".to_owned())
    }

    /// The value that a handle leads to, for a tensor that is declared as `operand`.
    pub(crate) fn read(
        &mut self,
        handle: usize,
        operand: &Operand,
        builder: &mut GraphBuilder,
    ) -> Result<Id, String> {
        let resource = self.of_handle(handle)?;
        if let Some(current) = resource.current {
            let found = builder.operand(current);
            if found.operand_type != operand.operand_type {
                let types = (operand.operand_type, found.operand_type);
                return Err(format!("is read as {}, its variable has {}", types.0, types.1));
            }
            return Ok(current);
        }
        match &resource.initial {
            Some((ty, _)) if *ty == operand.operand_type => {}
            Some((ty, _)) => {
                let wanted = operand.operand_type;
                return Err(format!("is read as {wanted}, its variable begins as {ty}"));
            }
            None => {
                return Err(format!(
                    "leads to the variable {:?}, which has no value yet: CALL_ONCE gives it none",
                    resource.name
                ));
            }
        }
        let input = builder.add(operand.clone().with_lifetime(OperandLifeTime::SubgraphInput))?;
        (resource.input, resource.current) = (Some(input), Some(input));
        Ok(input)
    }

    /// Replaces the value that a handle leads to.
    pub(crate) fn assign(&mut self, handle: usize, value: Id) -> Result<(), String> {
        self.of_handle(handle)?.current = Some(value);
        Ok(())
    }

    /// The variables whose first values count, each with its input, its value at the end and that value.
    pub(crate) fn into_states(self) -> impl Iterator<Item = (String, Id, Id, Vec<u8>)> {
        self.all.into_iter().filter_map(|resource| {
            let (input, current) = (resource.input?, resource.current?);
            let (_, initial) = resource.initial?;
            Some((resource.name, input, current, initial))
        })
    }
}
