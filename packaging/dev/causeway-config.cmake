# find_package(causeway) gives the target causeway::comm, wherever the folder lies: the headers <causeway/...> and
# libcauseway_comm.so. CAUSEWAY_LTOIR and CAUSEWAY_BITCODE name what kernels of Numba and Triton link, where it is there.
get_filename_component(_causeway_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(_causeway_libraries "${_causeway_prefix}/lib/causeway")

if(NOT EXISTS "${_causeway_libraries}/comm/libcauseway_comm.so")
  set(causeway_FOUND FALSE)
  set(causeway_NOT_FOUND_MESSAGE
      "${_causeway_libraries}/comm has no libcauseway_comm.so: install the package causeway-client of the same version")
  return()
endif()

if(NOT TARGET causeway::comm)
  add_library(causeway::comm SHARED IMPORTED)
  set_target_properties(causeway::comm PROPERTIES
    IMPORTED_LOCATION "${_causeway_libraries}/comm/libcauseway_comm.so"
    IMPORTED_NO_SONAME TRUE
    INTERFACE_INCLUDE_DIRECTORIES "${_causeway_prefix}/include")
endif()

foreach(_causeway_code LTOIR:ltoir BITCODE:bc)
  string(REPLACE ":" ";" _causeway_code "${_causeway_code}")
  list(GET _causeway_code 0 _causeway_name)
  list(GET _causeway_code 1 _causeway_end)
  if(EXISTS "${_causeway_libraries}/device/causeway_device.${_causeway_end}")
    set(CAUSEWAY_${_causeway_name} "${_causeway_libraries}/device/causeway_device.${_causeway_end}")
  endif()
endforeach()
