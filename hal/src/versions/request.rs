//! Requests between versions.

use super::{Inexpressible, Loss, v1_0};
use crate::{HalVersion, MemoryPool, Request, RequestPool};

impl Request {
    /// What keeps the request from being one of an older version: device buffers, which came with 1.3. Empty
    /// if nothing does. Of what kind memories are is not said here: whoever has them must see that those for
    /// 1.0 and 1.1 are no hardware buffers.
    #[must_use]
    pub fn compliant_with(&self, version: HalVersion) -> Vec<Loss> {
        if version >= HalVersion::V1_3 {
            return Vec::new();
        }
        let pools = self.pools.iter().enumerate();
        pools
            .filter_map(|(index, pool)| match pool {
                RequestPool::Memory { .. } => None,
                RequestPool::Token(_) => Some(Loss::new(
                    format!("pool {index}"),
                    "is a device buffer, which came with HAL 1.3; give a memory instead",
                )),
            })
            .collect()
    }

    /// The request as HAL 1.0 to 1.2 can say it. Nothing is lost.
    ///
    /// # Errors
    /// A pool is a device buffer.
    pub fn to_v1_0(&self) -> Result<v1_0::Request, Inexpressible> {
        let obstacles = self.compliant_with(HalVersion::V1_0);
        if !obstacles.is_empty() {
            return Err(Inexpressible {
                version: HalVersion::V1_2,
                obstacles,
            });
        }
        let sizes = self.pools.iter().filter_map(|pool| match *pool {
            RequestPool::Memory { size } => Some(MemoryPool { size }),
            RequestPool::Token(_) => None,
        });
        Ok(v1_0::Request {
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            pools: sizes.collect(),
        })
    }
}

impl From<v1_0::Request> for Request {
    fn from(request: v1_0::Request) -> Request {
        let pools = request.pools.into_iter();
        Request {
            inputs: request.inputs,
            outputs: request.outputs,
            pools: pools
                .map(|MemoryPool { size }| RequestPool::Memory { size })
                .collect(),
        }
    }
}
