-- Turns --rgpu=N into N licences `rgpu`, in slurmctld itself, so that a job waits in the queue until so many GPUs are free, and
-- no user can leave that out. Slurm looks for job_submit.lua beside slurm.conf and needs JobSubmitPlugins=lua. Where there
-- is one already, call causeway_licenses(job) in its slurm_job_submit.

local function wanted(job)
   for key, value in pairs(job.spank_job_env or {}) do
      local count = string.match(tostring(value), "CAUSEWAY_RGPU=(%d+)$")
      if count == nil and string.find(tostring(key), "CAUSEWAY_RGPU$") then
         count = tostring(value)
      end
      if count then
         return count
      end
   end
   return nil
end

function causeway_licenses(job)
   local count = wanted(job)
   if count == nil then
      return
   end
   local have = job.licenses
   if have == nil or have == "" then
      job.licenses = "rgpu:" .. count
   elseif not string.find("," .. have, ",rgpu", 1, true) then
      job.licenses = have .. ",rgpu:" .. count
   end
end

function slurm_job_submit(job, _, _)
   causeway_licenses(job)
   return slurm.SUCCESS
end

function slurm_job_modify(_, _, _, _)
   return slurm.SUCCESS
end
