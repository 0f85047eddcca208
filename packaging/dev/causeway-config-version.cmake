# Before 1.0 a minor version may change functions.
set(PACKAGE_VERSION "@VERSION@")
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
string(REGEX MATCH "^[0-9]+\\.[0-9]+" _causeway_has "${PACKAGE_VERSION}")
string(REGEX MATCH "^[0-9]+(\\.[0-9]+)?" _causeway_wanted "${PACKAGE_FIND_VERSION}")
if(NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION AND
   (_causeway_wanted STREQUAL "" OR "${_causeway_has}." MATCHES "^${_causeway_wanted}\\."))
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
