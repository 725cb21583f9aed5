//! Code that needs an executable stack: GCC builds a trampoline there for a nested function whose address is used.

use std::collections::BTreeSet;

use object::elf;

use crate::gc::Collector;
use crate::graph::InputSection;
use crate::help;
use crate::object_file::{Location, SectionKind};
use crate::reason::{Referrer, Rule};

impl Collector<'_, '_> {
    /// Refuses what the image holds of objects that ask for an executable stack (`.note.GNU-stack` with the flag `x`): the stack
    /// of an injected function is not executable, and its target would end with a fault.
    pub(crate) fn refuse_executable_stacks(&mut self) {
        let text = |section: &&InputSection<'_>| section.kind == SectionKind::Text;
        let held: BTreeSet<(usize, usize)> = self
            .sections
            .iter()
            .filter(text)
            .filter_map(InputSection::object_section)
            .collect();
        let objects: BTreeSet<usize> = held.iter().map(|&(object, _)| object).collect();
        for index in objects {
            let Some(object) = self.object(index).filter(|object| object.needs_executable_stack) else {
                continue;
            };
            let nested = object.symbols.iter().filter_map(|symbol| {
                let Location::Section { index, value } = symbol.place else {
                    return None;
                };
                let is_function = symbol.local && symbol.kind == elf::STT_FUNC;
                Some((nested_name(symbol.name).filter(|_| is_function)?, index, value))
            });
            let nested: Vec<_> = nested.collect();
            if nested.is_empty() {
                let by = Referrer {
                    name: format!("section `.note.GNU-stack` of {}", object.name),
                    ..Referrer::default()
                };
                self.reasons.add(
                    Rule::ExecutableStack,
                    &object.name,
                    "",
                    Some(by),
                    help::EXECUTABLE_STACK,
                );
            }
            for (name, section, value) in nested {
                if !held.contains(&(index, section)) {
                    continue;
                }
                let at = self.inputs.line(index, section, value);
                let place = at.map_or_else(|| format!("in {}", object.name), |line| format!("at {line}"));
                let detail = format!("a nested function, {place}");
                self.reasons
                    .add(Rule::ExecutableStack, name, &detail, None, help::NESTED_FUNCTION);
            }
        }
    }
}

/// The name in the source of a nested function of GNU C, whose symbol is `NAME.NUMBER`. Copies that the optimiser makes have a
/// word there, such as `NAME.constprop.0`.
fn nested_name(symbol: &str) -> Option<&str> {
    let (name, number) = symbol.rsplit_once('.')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !name.is_empty() && !name.contains('.')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::nested_name;

    #[test]
    fn copies_are_told_from_nested_functions() {
        assert_eq!(nested_name("compare.0"), Some("compare"));
        assert_eq!(nested_name("compare.12"), Some("compare"));
        for other in [
            "compare",
            "compare.constprop.0",
            "compare.part.1",
            ".L.0",
            ".0",
            "x.",
            "x.cold",
        ] {
            assert_eq!(nested_name(other), None, "{other}");
        }
    }
}
