use std::ffi::c_int;

use crate::burst::Burst;
use crate::compilation::Compilation;
use crate::ffi::{Handle, Out, guard, guard_free};
use crate::handles;
use crate::types::{ANeuralNetworksBurst, ANeuralNetworksCompilation};

/// Makes a burst of a finished compilation, for executions one after the other that cost little more than the
/// computing.
///
/// `BAD_STATE` if the compilation is not finished. Since feature level 29.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksBurst_create(
    compilation: Handle<ANeuralNetworksCompilation>,
    burst: Out<Handle<ANeuralNetworksBurst>>,
) -> c_int {
    guard("ANeuralNetworksBurst_create", || {
        compilation.expect("compilation")?;
        burst.clear("burst")?;
        let compilation = handles::get::<Compilation>(&compilation, "compilation")?;
        handles::create::<Burst>(burst, Burst::new(compilation)?)
    })
}

/// Frees a burst; NULL is no error. Since feature level 29.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksBurst_free(burst: Handle<ANeuralNetworksBurst>) {
    guard_free("ANeuralNetworksBurst_free", || handles::free::<Burst>(&burst));
}
