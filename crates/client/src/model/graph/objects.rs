//! User objects: things of the program that live as long as they are referenced, a graph for instance.

use crate::arguments::Address;
use crate::locks::{Mutex, rank};
use crate::model::handles;
use causeway_api::handle::{Handle, UserObject};
use causeway_api::sys::{CUhostFn, CUresult};
use core::ffi::c_void;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// A user object. When its last reference is released its destructor runs, on a thread of its own.
pub struct Object {
    name: Handle<UserObject>,
    destroy: unsafe extern "C" fn(*mut c_void),
    data: Address,
    run_later: RunLater,
}

/// Has a function of the program called with what it gets, on another thread.
pub type RunLater = fn(unsafe extern "C" fn(*mut c_void), Address);

impl Drop for Object {
    fn drop(&mut self) {
        handles::drop_handle(self.name);
        (self.run_later)(self.destroy, self.data);
    }
}

/// References to user objects, and how many to each.
#[derive(Clone, Default)]
pub struct Held(HashMap<Handle<UserObject>, (Arc<Object>, u32)>);

/// User objects.
struct Objects {
    /// The references that the program itself holds.
    own: LazyLock<Mutex<rank::ProgramReferences, Held>>,
    all: LazyLock<Mutex<rank::UserObjects, ByName>>,
}

static OBJECTS: Objects = Objects { own: LazyLock::new(Mutex::default), all: LazyLock::new(Mutex::default) };

/// Every object that exists, whoever refers to it.
type ByName = HashMap<Handle<UserObject>, std::sync::Weak<Object>>;

/// Makes an object to which the program holds `count` references; `run_later` calls its destructor.
pub fn create(
    data: *mut c_void,
    destroy: CUhostFn,
    count: u32,
    run_later: RunLater,
) -> Result<Handle<UserObject>, CUresult> {
    let destroy = destroy.filter(|_| count > 0).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let name = handles::create();
    let object = Arc::new(Object { name, destroy, data: Address(data), run_later });
    OBJECTS.all.lock().insert(name, Arc::downgrade(&object));
    OBJECTS.own.lock().0.insert(name, (object, count));
    Ok(name)
}

/// The object that the program names.
fn resolve(name: Handle<UserObject>) -> Result<Arc<Object>, CUresult> {
    let mut all = OBJECTS.all.lock();
    let object = all.get(&name).and_then(std::sync::Weak::upgrade);
    if object.is_none() {
        all.remove(&name);
    }
    object.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// Adds references of the program.
pub fn retain(name: Handle<UserObject>, count: u32) -> Result<(), CUresult> {
    OBJECTS.own.lock().add(name, count)
}

/// Gives references of the program back.
pub fn release(name: Handle<UserObject>, count: u32) -> Result<(), CUresult> {
    // Dropped without the lock.
    let released = OBJECTS.own.lock().take(name, count)?;
    drop(released);
    Ok(())
}

/// Hands references of the program over to `held`.
pub fn move_to(held: &mut Held, name: Handle<UserObject>, count: u32) -> Result<(), CUresult> {
    held.add(name, count)?;
    release(name, count).inspect_err(|_| drop(held.take(name, count)))
}

impl Held {
    /// Adds references.
    pub fn add(&mut self, name: Handle<UserObject>, count: u32) -> Result<(), CUresult> {
        if count == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let object = resolve(name)?;
        let (_, held) = self.0.entry(name).or_insert((object, 0));
        *held = held.checked_add(count).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        Ok(())
    }

    /// Takes references out; gives the object when they were the last ones here.
    pub fn take(&mut self, name: Handle<UserObject>, count: u32) -> Result<Option<Arc<Object>>, CUresult> {
        let (_, held) = self.0.get_mut(&name).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if count == 0 || count > *held {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        *held -= count;
        let is_last = *held == 0;
        Ok(if is_last { self.0.remove(&name).map(|(object, _)| object) } else { None })
    }

    /// Adds the references that others hold.
    pub fn join(&mut self, others: &Self) {
        for (name, (object, count)) in &others.0 {
            self.0.entry(*name).or_insert_with(|| (object.clone(), 0)).1 += count;
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
