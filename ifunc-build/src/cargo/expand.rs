//! The source text of a package behind all macros.

use super::command::{Job, Task};
use super::units::Plan;
use crate::{BuildError, BuildOptions, Progress};

/// Whose view of a package is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// That of programs which depend on the package: the typed handles.
    Host,
    /// That of an image build: also the entries, and nothing for the host alone.
    Image,
}

/// The source text of one ifunc package's library behind all macros, as the compiler prints it: unformatted.
///
/// # Errors
/// The options select no package or several, or the package does not compile.
pub fn expand_package(
    options: &BuildOptions,
    view: View,
    progress: &mut dyn Progress,
) -> Result<String, BuildError> {
    let plan = Plan::read(options)?;
    let packages = plan.packages();
    let [_] = packages[..] else {
        return Err(BuildError::NotOnePackage {
            known: packages.iter().map(|package| package.name.clone()).collect(),
        });
    };
    let job = Job {
        workspace: &plan.workspace,
        packages: &packages,
        features: &plan.features,
        target: &plan.target.join("expand"),
        options,
        task: Task::Expand {
            image: view == View::Image,
        },
    };
    job.expand(progress)
}
