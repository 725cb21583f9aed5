//! The source text of a package after macro expansion.

use super::command::{Job, Task};
use super::units::BuildPlan;
use crate::{BuildError, BuildOptions, Progress};

/// The build that a package is expanded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// A build of a program that depends on the package: the typed handles.
    Host,
    /// An image build: also the entries, and no code for the host alone.
    Image,
}

/// The source text of one ifunc package's library after macro expansion, unformatted, as the compiler prints it.
///
/// # Errors
/// The options select no package or several, or the package does not compile.
pub fn expand_package(
    options: &BuildOptions,
    view: View,
    progress: &mut dyn Progress,
) -> Result<String, BuildError> {
    let plan = BuildPlan::read(options)?;
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
        slice: None,
    };
    job.expand(progress)
}
