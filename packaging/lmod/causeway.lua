-- Causeway for Lmod: `module load causeway`, and programs find its libraries without `causeway run`. Where
-- the files are: two folders above this one (PREFIX/share/modulefiles/causeway/VERSION.lua), unless
-- CAUSEWAY_ROOT says it.
local prefix = os.getenv("CAUSEWAY_ROOT") or myFileName():match("^(.*)/share/modulefiles/")

whatis("Name: Causeway")
whatis("Version: " .. myModuleVersion())
whatis("Description: run CUDA programs on GPUs that are elsewhere")
help([[
Programs that are started now use the GPUs of the server that CAUSEWAY_ON names:

    export CAUSEWAY_ON=gpu-box
    causeway devices
    ./program
]])
-- A process has one CUDA driver.
conflict("cuda-compat")
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("LD_LIBRARY_PATH", pathJoin(prefix, "lib/causeway"))
prepend_path("MANPATH", pathJoin(prefix, "share/man") .. ":")
setenv("TRITON_LIBCUDA_PATH", pathJoin(prefix, "lib/causeway"))
