-- A site's own rule, as clusters have them: jobs of the account "refused" are turned away.
function slurm_job_submit(job, partitions, user)
    if job.account == "refused" then
        slurm.log_user("Account 'refused' has no allocation here; ask for one first")
        return slurm.ESLURM_INVALID_ACCOUNT
    end
    return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, user)
    return slurm.SUCCESS
end
